"""Samples with labels: in memory, or loaded batch by batch; and a data set of two such splits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

Batch = tuple[Tensor, Tensor]


class Samples(Protocol):
    """What every split can do. ``sample``: shape of one; ``tokens``: whether its entries are int64 numbers of tokens.

    ``labels``: int64 of shape ``(samples,)``, or integers of shape ``(samples, time)`` with one for each token;
    ``None`` where they are not known before the samples are loaded.
    """

    @property
    def labels(self) -> Tensor | None: ...

    @property
    def sample(self) -> tuple[int, ...]: ...

    @property
    def tokens(self) -> bool: ...

    def __len__(self) -> int: ...

    def to(self, device: torch.device, dtype: torch.dtype = torch.float32) -> Samples:
        """The same samples, whose batches come on ``device``, with the inputs in ``dtype`` unless they are tokens."""

    def batches(self, indices: Iterable[Tensor], seeds: Iterable[int] | None = None) -> Iterator[Batch]:
        """Inputs and int64 labels for each tensor of ``indices``, in turn.

        ``seeds``: one for each batch, of the draws that loading takes, where it takes any.
        """


class Normalize(NamedTuple):
    """``(image - mean) / std`` for each channel of images in 0 .. 1, shape ``(..., channels, height, width)``."""

    mean: tuple[float, ...]
    std: tuple[float, ...]

    @classmethod
    def of(cls, images: Tensor) -> Normalize:
        """To mean 0 and variance 1 over ``images``, uint8 of shape ``(samples, channels, height, width)``."""
        levels = torch.arange(256, dtype=torch.float64) / 255
        means, deviations = [], []
        for channel in images.unbind(1):
            shares = torch.bincount(channel.flatten(), minlength=256).double() / channel.numel()
            mean = float(shares @ levels)
            means.append(mean)
            # One level at least, so that a channel without any contrast is left as it is.
            deviations.append(max(float(shares @ (levels - mean).square()) ** 0.5, 1 / 255))
        return cls(tuple(means), tuple(deviations))

    def __call__(self, images: Tensor) -> Tensor:
        """The normalised ``images``, of their dtype."""
        mean, std = (images.new_tensor(values).view(-1, 1, 1) for values in self)
        return (images - mean) / std


def prepared(inputs: Tensor, dtype: torch.dtype, normalize: Normalize | None = None) -> Tensor:
    """A batch as a model takes it: floats in ``dtype``, uint8 images scaled to 0 .. 1, other integers as tokens."""
    if is_tokens(inputs):
        return inputs.long()
    inputs = inputs.to(dtype) / 255 if inputs.dtype == torch.uint8 else inputs.to(dtype)
    return inputs if normalize is None else normalize(inputs)


def is_tokens(inputs: Tensor) -> bool:
    """Whether ``inputs`` are numbers of tokens: integers other than uint8, which images are made of."""
    return not inputs.dtype.is_floating_point and inputs.dtype != torch.uint8


@dataclass(frozen=True)
class Split:
    """Samples in memory. ``inputs``: floats, uint8 images or integer tokens, of shape ``(samples, ...)``.

    Images stay uint8, and text a byte or two for each token: only batches are converted, to ``dtype`` or int64.
    """

    inputs: Tensor
    labels: Tensor
    normalize: Normalize | None = None
    dtype: torch.dtype = torch.float32

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def sample(self) -> tuple[int, ...]:
        """Shape of one sample."""
        return tuple(self.inputs.shape[1:])

    @property
    def tokens(self) -> bool:
        """Whether the inputs are tokens."""
        return is_tokens(self.inputs)

    def to(self, device: torch.device, dtype: torch.dtype = torch.float32) -> Split:
        """See ``Samples.to``. Floats are converted at once, everything else batch by batch."""
        inputs = self.inputs.to(device, dtype) if self.inputs.dtype.is_floating_point else self.inputs.to(device)
        return replace(self, inputs=inputs, labels=self.labels.to(device), dtype=dtype)

    def batch(self, indices: Tensor) -> Batch:
        """Inputs and labels of the samples of ``indices``, which may have any shape."""
        return prepared(self.inputs[indices], self.dtype, self.normalize), self.labels[indices].long()

    def batches(self, indices: Iterable[Tensor], seeds: Iterable[int] | None = None) -> Iterator[Batch]:
        """See ``Samples.batches``. Nothing is drawn."""
        return map(self.batch, indices)


@dataclass(frozen=True)
class Dataset:
    """Samples to learn from and samples to judge by, alike in shape."""

    train: Samples
    test: Samples
    classes: int

    @property
    def sample(self) -> tuple[int, ...]:
        """Shape of one sample."""
        return self.train.sample

    @property
    def tokens(self) -> bool:
        """Whether samples are tokens, in place of floats."""
        return self.train.tokens
