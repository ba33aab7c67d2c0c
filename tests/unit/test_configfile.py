"""Options that a run takes over from another one's file."""

from __future__ import annotations

from pathlib import Path

import pytest

from mpidec import UserError
from mpidec.train.config import Config
from mpidec.train.configfile import expand
from support.options import parsed, saved


@pytest.mark.parametrize("place", ["", "checkpoints", "checkpoints/step-00000005"])
def test_a_resumed_run_takes_its_own_options(place: str, tmp_path: Path) -> None:
    (tmp_path / "checkpoints" / "step-00000005").mkdir(parents=True)
    saved(Config(epochs=7, lr=0.03), tmp_path)
    config = parsed("--resume", str(tmp_path / place), "--save-every", "2")
    assert (config.epochs, config.lr, config.save_every) == (7, 0.03, 2)
    assert parsed("--resume", "auto", "--save-every", "1", "--out", str(tmp_path)).epochs == 30


def test_another_schedule_or_optimizer_overrules_what_belongs_to_the_old_one(tmp_path: Path) -> None:
    path = saved(Config(schedule="multistep", milestones="0.3", lr_factor=0.2), tmp_path)
    assert (parsed("--config", path).milestones, parsed("--config", path).lr_factor) == ("0.3", 0.2)
    assert parsed("--config", path, "--schedule", "cosine").milestones is None
    adam = parsed("--config", path, "--optimizer", "Adam")
    assert (adam.lr, adam.momentum) == (0.001, None)
    path = saved(Config(optimizer="adam", optimizer_options="eps=1e-6"), tmp_path)
    plain = parsed("--config", path, "--optimizer", "SGD")
    assert (plain.lr, plain.momentum, plain.optimizer_options) == (0.1, 0.9, None)
    assert parsed("--config", path, "--optimizer", "Adam").optimizer_options == "eps=1e-6"


def test_a_run_without_its_options_is_told(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    with pytest.raises(
        UserError, match=r"has checkpoints, but no config.yaml with the options of the run: put it back"
    ):
        expand(["--resume", str(tmp_path)])
