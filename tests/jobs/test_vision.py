"""A network of the CIFAR form on files of CIFAR's format, from end to end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.images import write_cifar10
from support.jobs import alone, mpirun

# Beside a torch that torchvision was not built for, its import needs help; data sets work all the same.
PROGRAM = """
from support.torchvision import torchvision_or_skip
torchvision_or_skip()
from mpidec.train.__main__ import main
main()
"""


def test_resnet20_on_cifar_files(tmp_path: Path) -> None:
    if "torchvision" not in alone("-m", "pip", "list", cwd=tmp_path).stdout:
        pytest.skip("torchvision is not installed")
    write_cifar10(tmp_path / "data")
    options = ["--data", "cifar10", "--model", "resnet20", "--augment", "--epochs", "1", "--batch-size", "5"]
    options += ["--decay", "weights", "--batch-norm", "recompute", "--schedule", "cosine", "--amp", "bf16"]
    done = mpirun(2, "-c", PROGRAM, *options, "--save-every", "1", "--out", "run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (summary["status"], summary["steps"]) == ("completed", 2)
    shown = alone("-m", "mpidec.train.checkpoint", "inspect", "run", cwd=tmp_path)
    assert "272,474 of float32" in shown.stdout
