"""Which checkpoint a path or a pointer leads to, and that it leads nowhere else."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from mpidec import UserError
from mpidec.train.checkpoint.store import Checkpoints
from mpidec.transport.solo import Solo
from support.checkpoints import about, on_ranks, save, sentences, state_of, step, told


@pytest.fixture
def run(tmp_path: Path) -> Path:
    on_ranks(3, lambda transport: save(transport, tmp_path / "run", 1, 2, 3))
    return tmp_path / "run"


POINTERS = {
    "outside": "../../elsewhere",
    "absolute": "/etc",
    "nothing": "",
    "no text": "\udcff",
    "no checkpoint": "checkpoint",
    "parent": "..",
    "slash": "step-00000001/../../x",
    "not there": "step-00000009",
}


@pytest.mark.parametrize("name", POINTERS.values(), ids=POINTERS)
def test_a_pointer_leads_nowhere_else(run: Path, name: str) -> None:
    pointer = run / "checkpoints" / "latest"
    pointer.write_bytes(name.encode(errors="surrogateescape"))
    said = told(run)
    assert said.startswith(f"{pointer} ")
    assert said.endswith(f"give one checkpoint, such as {step(run, 3)}")
    assert sentences(3, lambda transport: Checkpoints(run, transport, 1).latest()) == said


@pytest.mark.parametrize("name", ["../../elsewhere", "ABSOLUTE", "step-00000001/../../../elsewhere"])
def test_a_sound_checkpoint_outside_of_the_run_is_not_taken(run: Path, tmp_path: Path, name: str) -> None:
    shutil.copytree(step(run, 3), tmp_path / "elsewhere")
    (run / "checkpoints" / "latest").write_text(name.replace("ABSOLUTE", str(tmp_path / "elsewhere")))
    assert "which is no checkpoint of this run" in told(run)


def test_a_new_checkpoint_mends_the_pointer(run: Path) -> None:
    (run / "checkpoints" / "latest").write_text("..")
    on_ranks(3, lambda transport: save(transport, run, 4))
    assert (run / "checkpoints" / "latest").read_text() == "step-00000004\n"


def test_no_pointer_yet_is_the_last_that_was_finished(run: Path) -> None:
    (run / "checkpoints" / "latest").unlink()
    (step(run, 3) / "manifest.json").unlink()
    assert on_ranks(3, lambda transport: save(transport, run).latest()) == [step(run, 2)] * 3


def test_paths_that_lead_to_no_checkpoint(run: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    (step(run, 2) / "manifest.json").unlink()
    for path, sentence in [
        (tmp_path / "nowhere", "does not exist: give a run's folder, or one checkpoint in it, such as RUN/"),
        (tmp_path / "file", "is no folder: give a run's folder"),
        (tmp_path / "empty", "holds no finished checkpoint: give a run's folder"),
        (tmp_path / ("n" * 300), "cannot be read: File name too long"),
        (step(run, 2), f"has no manifest.json, so it was never finished: give one checkpoint, such as {step(run, 3)}"),
    ]:
        assert told(run, path).startswith(f"{path} {sentence}")


def test_a_checkpoint_that_was_copied_elsewhere_loads(tmp_path: Path) -> None:
    store = save(Solo(), tmp_path / "run", 5)
    shutil.copytree(step(tmp_path / "run", 5), tmp_path / "copy")
    assert store.load(tmp_path / "copy")[1]["step"] == 5
    (tmp_path / "copy" / "rank-0000.pt").unlink()
    with pytest.raises(UserError, match="no earlier checkpoint of this run is whole"):
        store.load(tmp_path / "copy")


def test_a_manifest_cannot_be_told_what_is_not_so(tmp_path: Path) -> None:
    """What the store says itself is not the job's to say."""
    Checkpoints(tmp_path, Solo(), 1).save(state_of(0, 1), {**about(1), "format": 9, "ranks": 9, "files": [], "time": 0})
    assert Checkpoints(tmp_path, Solo(), 1).load(tmp_path)[1]["ranks"] == 1
