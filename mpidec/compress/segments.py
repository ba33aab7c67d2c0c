"""Sums and scales by segment: the parameter tensors that lie one after the other in a flat vector."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

BLOCK = 1024  # entries that are summed in one go


def segments(sizes: Sequence[int]) -> Iterator[slice]:
    """The slices of consecutive segments of the given sizes."""
    start = 0
    for size in sizes:
        yield slice(start, start + size)
        start += size


def total(x: Tensor) -> Tensor:
    """The sum over the last dimension, in float32 at least and in blocks of a fixed size.

    torch splits a long sum among its threads, so that its rounding depends on their number and on the leading
    dimensions; a sum of blocks does not.
    """
    x = x.to(torch.promote_types(x.dtype, torch.float32))
    while x.shape[-1] > BLOCK:
        whole = x.shape[-1] // BLOCK * BLOCK
        blocks = x[..., :whole].reshape(*x.shape[:-1], -1, BLOCK)
        x = torch.cat([blocks.sum(-1), x[..., whole:]], dim=-1)
    return x.sum(-1)


def mean_magnitudes(x: Tensor, sizes: Sequence[int]) -> Tensor:
    """``norm1(u) / s`` of each segment u of s entries, shape ``(..., segments)``; 0 for an empty one, not 0 / 0."""
    magnitudes = x.abs()
    means = [total(magnitudes[..., place]) / max(1, place.stop - place.start) for place in segments(sizes)]
    return torch.stack(means, dim=-1).to(x.dtype)


def norms(x: Tensor, sizes: Sequence[int]) -> Tensor:
    """``norm2(u)`` of each segment, shape ``(..., segments)``.

    Squares of float32 values above 1e19 or below 1e-23 would leave its range, so they are summed in float64.
    """
    each = [total(x[..., place].double().square()).sqrt() for place in segments(sizes)]
    return torch.stack(each, dim=-1).to(x.dtype)


def clip(x: Tensor, limit: float, sizes: Sequence[int]) -> Tensor:
    """Scale every segment of ``x`` in place to a norm of at most ``limit``."""
    return scale(x, (limit / norms(x, sizes)).clamp(max=1), sizes)


def scale(x: Tensor, factors: Tensor, sizes: Sequence[int]) -> Tensor:
    """Multiply every segment of ``x`` in place by its own of the ``factors``, shape ``(..., segments)``."""
    for i, place in enumerate(segments(sizes)):
        x[..., place] *= factors[..., i : i + 1]
    return x
