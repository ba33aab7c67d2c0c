"""TensorBoard's event files, read back by TensorBoard itself."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import pytest

from mpidec.errors import UserError
from mpidec.train.tensorboard import TensorBoard, refuse_without_tensorboard, scalars
from support.jobs import alone
from support.runs import line


def read(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Steps and values of every scalar."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder))
    events.Reload()
    return {name: [(one.step, one.value) for one in events.Scalars(name)] for name in events.Tags()["scalars"]}


def test_every_number_of_an_epoch_is_a_scalar_by_steps(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    lines: list[dict[str, Any]] = [
        line(epoch, test_loss=0.5, train_loss_local={"mean": 1.0, "min": 0.5, "max": 2.0}) for epoch in (1, 2, 3)
    ]
    with TensorBoard(tmp_path) as board:
        for number, one in enumerate(lines, 1):
            board.epoch(one)
            assert len(read(tmp_path / "tensorboard")["loss/train"]) == number, "on the disk after each epoch"
    found = read(tmp_path / "tensorboard")
    assert set(found) == {
        "loss/train",
        "loss/test",
        "accuracy/averaged_model",
        "consensus/distance",
        "cost/bytes_sent_per_rank",
        "cost/seconds",
        "cost/lr",
        "phases/exchange",
        "phases/evaluate",
        *(f"{name}_{part}" for name in ("accuracy/local", "loss/train_local") for part in ("mean", "min", "max")),
    }
    assert [step for step, _ in found["loss/train"]] == [10, 20, 30]
    assert [value for _, value in found["loss/train"]] == pytest.approx([1, 1 / 2, 1 / 3])
    assert found["cost/bytes_sent_per_rank"][-1] == (30, 3000)
    assert found["accuracy/local_min"][-1] == (30, pytest.approx(0.675))
    assert found["phases/exchange"][-1] == (30, pytest.approx(1.8))


def test_what_is_no_number_is_left_out() -> None:
    strange = {"epoch": 1, "step": 5, "train_loss": math.nan, "test_loss": None, "note": "x", "done": True, "lr": 1}
    assert list(scalars(strange)) == [("cost/lr", 1.0)]


def test_a_folder_that_is_in_the_way_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    (tmp_path / "tensorboard").touch()
    with pytest.raises(UserError, match=r"tensorboard cannot be written: File exists"):
        TensorBoard(tmp_path)


def test_the_missing_package_is_named(tmp_path: Path) -> None:
    (tmp_path / "tensorboard.py").write_text("raise ImportError('not installed')\n")
    program = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from pathlib import Path\n"
        "from mpidec.train.tensorboard import TensorBoard\n"
        "from mpidec.errors import UserError\n"
        "try:\n    TensorBoard(Path('run'))\n"
        "except UserError as error:\n    print(error)\n"
    )
    done = alone("-c", program, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == (
        "--tensorboard needs the package tensorboard: pip install tensorboard, or mpidec with its extra tensorboard\n"
    )


def test_the_package_that_is_there_is_not_refused() -> None:
    pytest.importorskip("tensorboard")
    refuse_without_tensorboard()
    assert "tensorboard" in sys.modules
