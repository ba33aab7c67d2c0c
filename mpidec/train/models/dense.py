"""Networks of dense layers, for samples of any shape."""

from __future__ import annotations

import math

from torch import nn


def mlp(sample: tuple[int, ...], classes: int) -> nn.Module:
    """One hidden layer of 128 rectified units."""
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(sample), 128), nn.ReLU(), nn.Linear(128, classes))


def logistic(sample: tuple[int, ...], classes: int) -> nn.Module:
    """Multinomial logistic regression: convex, for comparisons with theory."""
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(sample), classes))
