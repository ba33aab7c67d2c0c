"""When a run writes a checkpoint, and what its manifest says."""

from __future__ import annotations

from pathlib import Path

from mpidec.train.checkpoint.store import Checkpoints
from mpidec.train.record import RunFolder
from mpidec.train.resume import identity
from mpidec.train.state import snapshot
from mpidec.train.trainer import Trainer


class Keeper:
    """Writes checkpoints into the run's ``folder``, which rank 0 has; every method is a collective call."""

    def __init__(self, trainer: Trainer, folder: RunFolder | None) -> None:
        self._trainer, config = trainer, trainer.config
        transport = trainer.network.transport
        self._asked = bool(config.save_every or config.save_every_steps or config.stop_after)
        if self._asked:
            place: Path = transport.broadcast_object(folder.path if folder else None)
            self._checkpoints = Checkpoints(place, transport, config.keep)

    def after_step(self, epoch: int, batch: int) -> None:
        """Save every so many steps; ``batch`` batches of ``epoch`` are done."""
        every = self._trainer.config.save_every_steps
        # At the end of an epoch the state after its evaluation is the better one.
        if every and self._trainer.optimizer.steps % every == 0 and batch < self._trainer.shards.steps:
            self._save(epoch, batch)

    def after_epoch(self, epoch: int, last: int) -> None:
        """Save every so many epochs, and at the end of a run that keeps checkpoints."""
        config, steps = self._trainer.config, self._trainer.optimizer.steps
        due = (config.save_every and epoch % config.save_every == 0) or (
            config.save_every_steps and steps % config.save_every_steps == 0
        )
        if due or (self._asked and epoch == last):
            self._save(epoch + 1, 0)

    def _save(self, epoch: int, batch: int) -> None:
        trainer = self._trainer
        about = {
            "step": trainer.optimizer.steps,
            "epoch": epoch - 1,  # finished ones
            "batch": batch,
            "algorithm": trainer.config.algorithm,
            "compressor": trainer.config.compressor,
            "topology": trainer.network.topology.name,
            **identity(trainer),
        }
        with trainer.meter.phase("checkpoint"):
            self._checkpoints.save(snapshot(trainer, epoch, batch), about)
