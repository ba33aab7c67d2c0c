"""What is measured while ranks train."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from mpidec.errors import NonFiniteError
from mpidec.optim.distributed import DistributedOptimizer
from mpidec.spans import Span
from mpidec.train.evaluate import Evaluation

AFTERWARDS = ("evaluate", "checkpoint")  # phases that belong to the step before them; others to the one that comes


class Stopwatch:
    """Seconds since the start, and ``seconds`` by phase."""

    def __init__(self) -> None:
        self._started = time.perf_counter()
        self.seconds: defaultdict[str, float] = defaultdict(float)

    @property
    def total(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self._started

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time what runs inside as the phase ``name``."""
        with self._span(name) as span:
            yield
        self.seconds[name] += span.seconds

    def _span(self, name: str) -> Span:
        return Span(name)


def spread(values: Sequence[float]) -> dict[str, float]:
    """How a figure differs among the ranks."""
    return {"mean": sum(values) / len(values), "min": min(values), "max": max(values)}


def epoch_line(
    epoch: int,
    step: int,
    lr: float,
    losses: Sequence[float],
    evaluation: Evaluation,
    sent: float,
    watch: Stopwatch,
    phases: Sequence[Mapping[str, float]],
) -> dict[str, Any]:
    """The metrics of an epoch; bytes, seconds and phases count from the start of the training.

    ``losses``: of each rank; ``sent``: bytes, a mean over the ranks; ``phases``: seconds of each rank by phase, or of
    all of them together.
    """
    means = {name: sum(one[name] for one in phases) / len(phases) for name in phases[0]}
    return {
        "epoch": epoch,
        "step": step,
        "lr": lr,
        "train_loss": sum(losses) / len(losses),
        "train_loss_local": spread(losses),
        "test_loss": evaluation.test_loss,
        "test_loss_local": spread(evaluation.test_loss_local),
        "test_accuracy": evaluation.test_accuracy,
        "test_accuracy_local": spread(evaluation.test_accuracy_local),
        "consensus_distance": evaluation.consensus_distance,
        "bytes_sent": round(sent),
        "seconds": watch.total,
        "phases": means,
        "phases_max": {name: max(one[name] for one in phases) for name in means},
    }


class Meter(Stopwatch):
    """Adds up the losses and phases of one rank of a job, and closes every epoch with one line of metrics.

    ``last`` holds that line, and ``rate`` the learning rate of the last step.
    """

    def __init__(self, optimizer: DistributedOptimizer) -> None:
        super().__init__()
        self._optimizer = optimizer
        self._losses: list[Tensor] = []
        self.last: dict[str, Any] = {}
        self.rate = 0.0

    def _span(self, name: str) -> Span:
        """Also kept by the recorder of the communicator, where there is one."""
        step = self._optimizer.steps + (name not in AFTERWARDS)
        return Span(name.replace("_", " "), self._optimizer.comm.recorder, step)

    def add_loss(self, loss: Tensor) -> None:
        """The loss of one step; read only at the end of the epoch, so that a device is not waited for."""
        self._losses.append(loss.detach())

    def close_epoch(self, epoch: int, evaluation: Evaluation) -> dict[str, Any]:
        """The metrics of the epoch; a collective call."""
        optimizer = self._optimizer
        mine = {
            "train_loss": sum(float(loss) for loss in self._losses) / len(self._losses),
            "bytes_sent": optimizer.comm.bytes_sent,
            "phases": {**self.seconds, **optimizer.seconds},
        }
        self._losses.clear()
        ranks = optimizer.comm.transport.all_gather_objects(mine)
        for number, rank in enumerate(ranks):
            if not math.isfinite(rank["train_loss"]):
                raise NonFiniteError(
                    f"the training loss of rank {number} in epoch {epoch} is NaN or infinity: lower the learning rate "
                    "or gamma"
                )
        self.last = epoch_line(
            epoch,
            optimizer.steps,
            self.rate,
            [rank["train_loss"] for rank in ranks],
            evaluation,
            sum(rank["bytes_sent"] for rank in ranks) / len(ranks),
            self,
            [rank["phases"] for rank in ranks],
        )
        return self.last

    def state_dict(self) -> dict[str, Any]:
        """What was measured so far; loads with ``weights_only``."""
        return {
            "losses": torch.stack(self._losses).cpu() if self._losses else torch.zeros(0),
            "total": self.total,
            "seconds": dict(self.seconds),
            "optimizer_seconds": dict(self._optimizer.seconds),
            "bytes_sent": self._optimizer.comm.bytes_sent,
            "last": self.last,
            "rate": self.rate,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The inverse: time and bytes go on from there."""
        self._losses = list(state["losses"].to(self._optimizer.flat.data.device))
        self._started = time.perf_counter() - state["total"]
        self.seconds = defaultdict(float, state["seconds"])
        self._optimizer.seconds.update(state["optimizer_seconds"])
        self._optimizer.comm.bytes_sent = state["bytes_sent"]
        self.last, self.rate = state["last"], state["rate"]
