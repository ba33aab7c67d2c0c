"""What is measured while ranks train."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import Tensor

from mpidec.optim.distributed import DistributedOptimizer
from mpidec.train.evaluate import Evaluation


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
        started = time.perf_counter()
        yield
        self.seconds[name] += time.perf_counter() - started


def epoch_line(
    epoch: int,
    step: int,
    lr: float,
    loss: float,
    evaluation: Evaluation,
    sent: float,
    watch: Stopwatch,
    phases: Mapping[str, float],
) -> dict[str, Any]:
    """The metrics of an epoch; bytes, seconds and phases count from the start of the training.

    ``loss``, ``sent`` (bytes) and ``phases`` (seconds) are means over the ranks.
    """
    local = evaluation.test_accuracy_local
    return {
        "epoch": epoch,
        "step": step,
        "lr": lr,
        "train_loss": loss,
        "test_accuracy": evaluation.test_accuracy,
        "test_accuracy_local": {"mean": sum(local) / len(local), "min": min(local), "max": max(local)},
        "consensus_distance": evaluation.consensus_distance,
        "bytes_sent": round(sent),
        "seconds": watch.total,
        "phases": dict(phases),
    }


class Meter(Stopwatch):
    """Adds up the losses and phases of one rank of a job, and closes every epoch with one line of metrics."""

    def __init__(self, optimizer: DistributedOptimizer) -> None:
        super().__init__()
        self._optimizer = optimizer
        self._losses: list[Tensor] = []

    def add_loss(self, loss: Tensor) -> None:
        """The loss of one step; read only at the end of the epoch, so that a device is not waited for."""
        self._losses.append(loss.detach())

    def close_epoch(self, epoch: int, evaluation: Evaluation) -> dict[str, Any]:
        """The metrics of the epoch; a collective call."""
        optimizer = self._optimizer
        mine = {
            "train_loss": sum(float(loss) for loss in self._losses) / len(self._losses),
            "bytes_sent": optimizer.comm.bytes_sent,
            **self.seconds,
            **optimizer.seconds,
        }
        self._losses.clear()
        ranks = optimizer.comm.transport.all_gather_objects(mine)
        means = {name: sum(rank[name] for rank in ranks) / len(ranks) for name in mine}
        loss, sent, lr = means.pop("train_loss"), means.pop("bytes_sent"), optimizer.param_groups[0]["lr"]
        return epoch_line(epoch, optimizer.steps, lr, loss, evaluation, sent, self, means)
