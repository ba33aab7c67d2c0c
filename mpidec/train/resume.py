"""What a run goes on from: its own checkpoint, or the averaged model of another run."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from mpidec.errors import UserError
from mpidec.optim.agreement import by_rank_0
from mpidec.train.checkpoint import manifest
from mpidec.train.checkpoint.average import average
from mpidec.train.checkpoint.layout import FOLDER, pointed, resolve
from mpidec.train.checkpoint.loading import load
from mpidec.train.checks import changed
from mpidec.train.config import Config
from mpidec.train.record import Site
from mpidec.train.state import restore
from mpidec.train.trainer import Trainer
from mpidec.transport.base import Transport


@dataclass(frozen=True)
class Origin:
    """Where a run begins: at the ``checkpoint`` of the run folder ``folder``; without a ``folder``, at its average."""

    checkpoint: Path | None = None
    folder: Path | None = None


@dataclass(frozen=True)
class Position:
    """The next batch: ``batch``, from 0, of ``epoch``, from 1."""

    epoch: int = 1
    batch: int = 0


def origin(config: Config, transport: Transport) -> Origin:
    """What ``config`` asks to go on from; a collective call. Raises ``UserError`` where there is nothing."""

    def find() -> Origin:
        if config.resume_as is not None:
            return Origin(resolve(config.resume_as))
        if config.resume == "auto":
            assert config.out is not None, "a config refuses auto without a folder"
            checkpoint = pointed(config.out / FOLDER)
            return Origin(checkpoint, config.out if checkpoint else None)
        if config.resume is not None:
            checkpoint = resolve(Path(config.resume)).resolve()
            return Origin(checkpoint, checkpoint.parent.parent)
        return Origin()

    return by_rank_0(transport, find)


def load_average(begin: Origin, model: nn.Module, transport: Transport) -> None:
    """Where a new run goes on from an averaged model: put it into ``model``, on rank 0, before it goes to all ranks."""
    if begin.checkpoint is None or begin.folder is not None:
        return
    checkpoint = begin.checkpoint

    def put() -> None:
        try:
            model.load_state_dict(average(checkpoint))
        except RuntimeError as error:
            raise UserError(
                f"the averaged model of {checkpoint} does not fit this one ({short(error)}): take the same --model"
            ) from None

    by_rank_0(transport, put)


def start(trainer: Trainer, begin: Origin) -> Position:
    """Bring ``trainer`` to where the run begins; a collective call.

    Raises ``UserError``, on all ranks, for a checkpoint that is damaged, or was written with other options.
    """
    if begin.checkpoint is None:
        return Position()
    if begin.folder is None:
        return _start_anew(trainer, begin.checkpoint)
    state, about = load(begin.checkpoint, trainer.network.transport)
    try:
        refuse_other_run(trainer, about, begin.folder)
        restore(trainer, state)
        position = Position(**state["position"])
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(
            f"{begin.checkpoint} does not fit this run ({short(error)}): take the --model that it was written with, "
            "or an earlier checkpoint"
        ) from error
    if position.epoch > trainer.config.epochs + 1 or position.batch > trainer.shards.steps:
        raise UserError(
            f"{begin.checkpoint} has {position.epoch - 1} epochs behind it: --epochs is the length of the whole run, "
            f"and {trainer.config.epochs} is less"
        )
    return position


def short(error: Exception) -> str:
    """What ``error`` says, on one line of a sensible length."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return text if len(text) < 240 else text[:237] + "..."


def _start_anew(trainer: Trainer, checkpoint: Path) -> Position:
    """After the finished epochs of another run: its steps count, for schedules and all that changes with the epoch."""
    about = by_rank_0(trainer.network.transport, lambda: manifest.read(checkpoint))
    behind = about.get("epoch")
    if not isinstance(behind, int) or behind < 0:
        raise UserError(f"the manifest of {checkpoint} does not say after how many epochs it was written: take another")
    if behind >= trainer.config.epochs:
        raise UserError(
            f"{checkpoint} has {behind} epoch{'s' * (behind != 1)} behind it: give more than that with --epochs"
        )
    trainer.optimizer.steps = behind * trainer.shards.steps
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Detected call of `lr_scheduler.step")
        for _ in range(trainer.optimizer.steps):
            trainer.scheduler.step()
    return Position(behind + 1)


def identity(trainer: Trainer) -> dict[str, Any]:
    """What a run must have in common with its checkpoints, for their manifests."""
    network = trainer.network
    return {
        "config": trainer.config.resolved(),
        "graph": network.topology.digest,
        "collectives": Site.of(network, trainer.config).collectives,
        "samples": [len(trainer.train_samples), len(trainer.test_samples)],
    }


def refuse_other_run(trainer: Trainer, about: Mapping[str, Any], folder: Path) -> None:
    """Raise ``UserError`` where ``trainer`` would go on with something else than what the manifest ``about`` tells."""
    mine = identity(trainer)
    difference = changed(trainer.config, about["config"])
    for name, what in (
        ("graph", "a graph of other edges or weights"),
        ("collectives", f"sums by {about['collectives']}, not {mine['collectives']}"),
        ("samples", f"{about['samples']} training and test samples, not {mine['samples']}"),
    ):
        difference = difference or (what if about[name] != mine[name] else "")
    if difference:
        raise UserError(
            f"the checkpoint was written with {difference}: take the same, or start a new run from its averaged model "
            f"with --resume-as {folder}"
        )
