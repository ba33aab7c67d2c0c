"""What is measured while a rank trains, and its mean over the ranks."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor

from mpidec.optim.distributed import DistributedOptimizer
from mpidec.train.evaluate import Evaluation


class Meter:
    """Adds up losses and the seconds of each phase, and closes every epoch with one line of metrics."""

    def __init__(self, optimizer: DistributedOptimizer) -> None:
        self._optimizer = optimizer
        self._started = time.perf_counter()
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._losses: list[Tensor] = []

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time what runs inside as the phase ``name``."""
        started = time.perf_counter()
        yield
        self._seconds[name] += time.perf_counter() - started

    def add_loss(self, loss: Tensor) -> None:
        """The loss of one step; read only at the end of the epoch, so that a device is not waited for."""
        self._losses.append(loss.detach())

    def close_epoch(self, epoch: int, evaluation: Evaluation) -> dict[str, Any]:
        """The metrics of the epoch; a collective call. Bytes, seconds and phases count from the start of the training.

        ``train_loss``, ``bytes_sent`` and ``phases`` are means over the ranks.
        """
        optimizer, local = self._optimizer, evaluation.test_accuracy_local
        mine = {
            "train_loss": sum(float(loss) for loss in self._losses) / len(self._losses),
            "bytes_sent": optimizer.comm.bytes_sent,
            **self._seconds,
            **optimizer.seconds,
        }
        self._losses.clear()
        ranks = optimizer.comm.transport.all_gather_objects(mine)
        means = {name: sum(rank[name] for rank in ranks) / len(ranks) for name in mine}
        loss, sent = means.pop("train_loss"), means.pop("bytes_sent")
        return {
            "epoch": epoch,
            "step": optimizer.steps,
            "lr": optimizer.param_groups[0]["lr"],
            "train_loss": loss,
            "test_accuracy": evaluation.test_accuracy,
            "test_accuracy_local": {"mean": sum(local) / len(local), "min": min(local), "max": max(local)},
            "consensus_distance": evaluation.consensus_distance,
            "bytes_sent": round(sent),
            "seconds": time.perf_counter() - self._started,
            "phases": means,
        }
