"""The built-in networks: each a function of the shape of a sample and the number of classes."""

from __future__ import annotations

import math
from pkgutil import resolve_name

from torch import nn

from mpidec.train.names import MODELS


def mlp(sample: tuple[int, ...], classes: int) -> nn.Module:
    """One hidden layer of 128 rectified units."""
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(sample), 128), nn.ReLU(), nn.Linear(128, classes))


def logistic(sample: tuple[int, ...], classes: int) -> nn.Module:
    """Multinomial logistic regression: convex, for comparisons with theory."""
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(sample), classes))


def build(name: str, sample: tuple[int, ...], classes: int) -> nn.Module:
    """The model ``name`` of the table."""
    model: nn.Module = resolve_name(MODELS[name])(sample, classes)
    return model
