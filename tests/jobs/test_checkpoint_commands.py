"""``python -m mpidec.train.checkpoint``: what it prints, writes and refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from support.checkpoints import on_ranks, save, step, tree
from support.jobs import alone, assert_one_sentence, mpirun

COMMAND = ("-m", "mpidec.train.checkpoint")
LIMITED = """
import resource, runpy, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (500, 500))
sys.argv = ["checkpoint", "average", "run", "--out", "model.pt"]
runpy.run_module("mpidec.train.checkpoint", run_name="__main__", alter_sys=True)
"""
LAZY = """
import runpy, sys
sys.argv = ["checkpoint", *sys.argv[1:]]
try:
    runpy.run_module("mpidec.train.checkpoint", run_name="__main__", alter_sys=True)
except SystemExit:
    print("torch" in sys.modules)
"""


@pytest.fixture
def run(tmp_path: Path) -> Path:
    on_ranks(2, lambda transport: save(transport, tmp_path / "run", 1, 2))
    return tmp_path / "run"


def test_inspect(run: Path, tmp_path: Path) -> None:
    done = alone(*COMMAND, "inspect", "run", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("run/checkpoints/step-00000002\nstep                2\n")
    shown = json.loads(alone(*COMMAND, "inspect", "run", "--json", cwd=tmp_path).stdout)
    assert (shown["step"], shown["config"], shown["whole"]) == (2, {"lr": 0.1, "out": "runs/x"}, True)
    (step(run, 2) / "rank-0001.pt").unlink()
    done = alone(*COMMAND, "inspect", "run/checkpoints", cwd=tmp_path)
    assert done.returncode == 1
    assert "1 of 2 are missing or damaged" in done.stdout


def test_average(run: Path, tmp_path: Path) -> None:
    before = tree(run)
    done = alone(*COMMAND, "average", "run", "--out", "model.pt", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert 'model.load_state_dict(torch.load("model.pt", weights_only=True))' in done.stdout
    model = torch.load(tmp_path / "model.pt", weights_only=True)
    assert torch.equal(model["weight"], torch.full((2, 3), 20.5))
    assert tree(run) == before
    content = (tmp_path / "model.pt").read_bytes()
    done = alone(*COMMAND, "average", "run/checkpoints/step-00000001", "--out", "model.pt", cwd=tmp_path)
    assert done.returncode == 2
    assert_one_sentence(done.stderr, "model.pt exists already, and nothing is overwritten: choose another --out")
    assert (tmp_path / "model.pt").read_bytes() == content


def test_an_average_that_cannot_be_written_leaves_nothing(run: Path, tmp_path: Path) -> None:
    before = tree(tmp_path)
    done = alone("-c", LIMITED, cwd=tmp_path)
    assert done.returncode == 2
    assert_one_sentence(done.stderr, "model.pt cannot be written: File too large")
    assert tree(tmp_path) == before


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("inspect", "nowhere"), "nowhere does not exist: give a run's folder"),
        (("inspect", "."), "holds no finished checkpoint"),
        (("inspect",), "DIR"),
        (("inspect", "run", "--jsno"), "perhaps you meant --json"),
        (("average", "run"), "--out"),
        (("average", "run", "--out", "no/model.pt"), "no/model.pt cannot be written: no is no folder, make it first"),
        (("average", "run", "--out", "run"), "run exists already"),
        (("forget", "run"), "forget"),
    ],
)
def test_mistakes_cost_no_torch(run: Path, tmp_path: Path, arguments: tuple[str, ...], sentence: str) -> None:
    before = tree(tmp_path)
    done = alone(*COMMAND, *arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert_one_sentence(done.stderr, sentence)
    assert tree(tmp_path) == before
    assert alone("-c", LAZY, *arguments, cwd=tmp_path).stdout == "False\n"


def test_damage_that_is_found_later_is_a_sentence_too(run: Path, tmp_path: Path) -> None:
    (step(run, 2) / "rank-0001.pt").write_bytes(b"")
    done = alone(*COMMAND, "average", "run", "--out", "model.pt", cwd=tmp_path)
    assert done.returncode == 2
    assert_one_sentence(done.stderr, "rank-0001.pt has 0 bytes")
    assert not (tmp_path / "model.pt").exists()


def test_help_costs_no_torch(tmp_path: Path) -> None:
    for arguments in (["--help"], ["inspect", "--help"], ["average", "--help"], ["--version"]):
        assert alone("-c", LAZY, *arguments, cwd=tmp_path).stdout.endswith("False\n")


def test_many_processes_are_refused(run: Path, tmp_path: Path) -> None:
    done = mpirun(2, *COMMAND, "inspect", "run", cwd=tmp_path)
    assert done.returncode == 2
    assert "error: one process reads the files of all ranks: start it without the launcher" in done.stderr
