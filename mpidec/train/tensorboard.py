"""The metrics of a run as TensorBoard shows them, beside ``metrics.jsonl``."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from mpidec.errors import UserError
from mpidec.folder import writing

FOLDER = "tensorboard"  # within that of the run
NAMES = {
    "train_loss": "loss/train",
    "train_loss_local": "loss/train_local",
    "test_loss": "loss/test",
    "test_loss_local": "loss/test_local",
    "test_accuracy": "accuracy/averaged_model",
    "test_accuracy_local": "accuracy/local",
    "consensus_distance": "consensus/distance",
    "bytes_sent": "cost/bytes_sent_per_rank",
    "seconds": "cost/seconds",
    "lr": "cost/lr",
}
PLACES = ("epoch", "step")  # the axis, and what goes with it


def refuse_without_tensorboard() -> None:
    """Raise ``UserError`` where TensorBoard's event files cannot be written, before anything is trained."""
    try:
        import torch.utils.tensorboard  # noqa: F401
    except ImportError:
        raise UserError(
            "--tensorboard needs the package tensorboard: pip install tensorboard, or mpidec with its extra tensorboard"
        ) from None


class TensorBoard:
    """Event files in ``<run>/tensorboard``, written by rank 0 alone; every number of an epoch is a scalar by steps.

    ``tensorboard --logdir runs`` shows the runs beside each other. Raises ``UserError`` where the package is missing or
    the folder cannot be written.
    """

    def __init__(self, run: Path, steps: int = 0) -> None:
        """``steps``: those that a resumed run has behind it; what was written for later ones is hidden."""
        refuse_without_tensorboard()
        from torch.utils.tensorboard import SummaryWriter

        self._path = run / FOLDER
        with writing(self._path):
            self._writer = SummaryWriter(self._path, purge_step=steps + 1 if steps else None)

    def __enter__(self) -> TensorBoard:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def epoch(self, metrics: dict[str, Any]) -> None:
        """One more epoch: ``metrics`` is its line of ``metrics.jsonl``. It is on the disk when this returns."""
        with writing(self._path):
            for name, value in scalars(metrics):
                self._writer.add_scalar(name, value, metrics["step"])
            self._writer.flush()

    def close(self) -> None:
        """No more epochs."""
        with writing(self._path):
            self._writer.close()


def scalars(metrics: dict[str, Any]) -> Iterator[tuple[str, float]]:
    """The numbers of an epoch with TensorBoard's names for them, groups spread out; what is no number is left out.

    >>> line = {"epoch": 1, "step": 45, "train_loss": 0.5, "test_accuracy_local": {"mean": 0.8, "min": 0.7}}
    >>> list(scalars(line))
    [('loss/train', 0.5), ('accuracy/local_mean', 0.8), ('accuracy/local_min', 0.7)]
    """
    for name, value in metrics.items():
        if name in PLACES:
            continue
        if isinstance(value, dict):
            # Phases are a group of their own, and what is known of every rank stands beside its mean.
            base = f"{NAMES[name]}_" if name in NAMES else f"{name}/"
            yield from ((f"{base}{part}", float(one)) for part, one in value.items() if _is_number(one))
        elif _is_number(value):
            yield NAMES.get(name, name), float(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
