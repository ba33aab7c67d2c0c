"""Loss and hits, of one label a sample or of one a token."""

from __future__ import annotations

from torch import Tensor, nn

from mpidec.errors import UserError


def cross_entropy(outputs: Tensor, labels: Tensor) -> Tensor:
    """The mean over all labels, shape ``()``.

    ``outputs``: scores of shape ``(batch, classes)`` or ``(batch, time, classes)``; ``labels``: int64 of the same shape
    without the last dimension. Raises ``UserError`` where the two do not fit.
    """
    if outputs.shape[:-1] != labels.shape:
        raise UserError(
            f"the model returns scores of shape {tuple(outputs.shape)}, but the labels have the shape "
            f"{tuple(labels.shape)}: it must give a score for each class behind each of them"
        )
    return nn.functional.cross_entropy(outputs.flatten(0, -2), labels.flatten())


def hits(outputs: Tensor, labels: Tensor) -> Tensor:
    """How many labels have the highest score: int64 of shape ``()``."""
    return (outputs.argmax(-1) == labels).sum()
