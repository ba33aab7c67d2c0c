"""Real jobs that are killed, resumed, and looked at."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import yaml

from support.jobs import alone, environment, launcher, mpirun

RANKS = 4
EVERY = ["--epochs", "3", "--batch-size", "16", "--save-every-steps", "5"]
RUNS = {
    "choco": "--model logistic",
    "allreduce": "--model logistic --algorithm allreduce",
    # All that draws at random, by processes of its own too, and all that has statistics.
    "drawing": "--algorithm local --data mine:data --model mine:net --workers 1 --augment --batch-norm recompute "
    "--amp bf16 --accumulate 2 --batch-size 8",
}
MINE = """
import torch
from torch import nn

class Noisy(torch.utils.data.Dataset):
    def __init__(self, samples):
        self.targets = [k % 3 for k in range(samples)]

    def __len__(self):
        return len(self.targets)

    def __getitem__(self, index):
        return torch.randn(3, 8, 8) + self.targets[index], self.targets[index]

def data():
    return Noisy(1280), Noisy(64)

def net(sample, classes):
    body = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Dropout(0.3), nn.Linear(144, classes)
    return nn.Sequential(*body)
"""


def digest(folder: Path) -> str:
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["status"] == "completed"
    return summary["parameters_digest"]


def killed_in_the_middle(options: list[str], out: Path) -> None:
    """Start a run, and kill it with all its ranks once it has kept the second checkpoint."""
    command = [*launcher(RANKS), sys.executable, *options, "--out", str(out)]
    with open(os.devnull, "w") as nowhere:
        streams = {"stdout": nowhere, "stderr": nowhere}
        job = subprocess.Popen(command, cwd=out.parent, env=environment(), start_new_session=True, **streams)
    deadline = time.monotonic() + 100
    while not (out / "checkpoints" / "step-00000010" / "manifest.json").exists():
        assert job.poll() is None, "it ended by itself"
        assert time.monotonic() < deadline
        time.sleep(0.002)
    children = subprocess.run(["pgrep", "-s", str(job.pid)], capture_output=True, text=True, check=False).stdout.split()
    for pid in children:
        try:
            os.kill(int(pid), signal.SIGKILL)
        except ProcessLookupError:
            continue
    job.wait(timeout=30)


@pytest.mark.parametrize("name", ["choco", pytest.param("allreduce", marks=pytest.mark.long), "drawing"])
def test_a_killed_run_goes_on_bit_for_bit(name: str, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    options = ["-m", "mpidec.train", *EVERY, *RUNS[name].split()]
    whole = mpirun(RANKS, *options, "--out", "whole", cwd=tmp_path)
    assert whole.returncode == 0, whole.stderr
    killed_in_the_middle(options, tmp_path / "killed")
    again = mpirun(RANKS, *options, "--out", "killed", "--resume", "auto", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert digest(tmp_path / "killed") == digest(tmp_path / "whole")
    lines = [json.loads(line) for line in (tmp_path / "killed" / "metrics.jsonl").read_text().splitlines()]
    assert [line["epoch"] for line in lines] == [1, 2, 3]


def test_the_folder_of_a_run(tmp_path: Path) -> None:
    """Everything that a run can leave behind, and what the commands make of it."""
    options = ["--epochs", "2", "--batch-size", "32", "--partition", "dirichlet:0.3", "--save-every", "1", "--trace"]
    done = mpirun(RANKS, "-m", "mpidec.train", *options, "--stop-after", "1", "--out", "run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "go on with --resume run" in done.stdout
    again = mpirun(RANKS, "-m", "mpidec.train", "--resume", "run", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert "goes on after 12 steps" in again.stdout
    run = tmp_path / "run"
    assert {path.name for path in run.iterdir()} == {
        "checkpoints",
        "config.yaml",
        "labels.json",
        "metrics.jsonl",
        "summary.json",
        "trace.json.gz",
    }
    labels = json.loads((run / "labels.json").read_text())["ranks"]
    assert (len(labels), len(labels[0]), sum(map(sum, labels))) == (RANKS, 10, 1438)
    assert yaml.safe_load((run / "config.yaml").read_text())["partition"] == "dirichlet:0.3"
    events = json.loads(gzip.decompress((run / "trace.json.gz").read_bytes()))["traceEvents"]
    names = {event["name"] for event in events if event["ph"] == "X"}
    assert {"forward backward", "local step", "encode", "decode", "evaluate", "checkpoint"} <= names
    shown = alone("-m", "mpidec.train.checkpoint", "inspect", "run", cwd=tmp_path)
    assert shown.returncode == 0, shown.stderr
    assert "consensus distance" in shown.stdout
    averaged = alone("-m", "mpidec.train.checkpoint", "average", "run", "--out", "model.pt", cwd=tmp_path)
    assert averaged.returncode == 0, averaged.stderr
    state = torch.load(tmp_path / "model.pt", weights_only=True)
    assert {name: tuple(value.shape) for name, value in state.items()} == {
        "1.weight": (128, 64),
        "1.bias": (128,),
        "3.weight": (10, 128),
        "3.bias": (10,),
    }
    other = mpirun(2, "-m", "mpidec.train", "--resume-as", "run", "--epochs", "3", "--out", "other", cwd=tmp_path)
    assert other.returncode == 0, other.stderr
    (line,) = [json.loads(text) for text in (tmp_path / "other" / "metrics.jsonl").read_text().splitlines()]
    assert line["epoch"] == 3
    wrong = mpirun(2, "-m", "mpidec.train", "--resume", "run", cwd=tmp_path, timeout=60)
    assert wrong.returncode != 0
    assert wrong.stderr.count("error: ") == 1
    assert "was saved by 4 ranks, and this job has 2" in wrong.stderr
