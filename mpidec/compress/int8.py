"""Eight bits an entry: a direction that local EF-signSGD may exchange in the place of signs."""

from __future__ import annotations

import torch
from torch import Tensor

from mpidec.compress.base import Compressor, column
from mpidec.compress.message import Message, Parts
from mpidec.compress.segments import mean_magnitudes, scale

STEPS = 128  # of the magnitudes between 0 and 1
SMALLEST = 3 / 512  # rounds up to one step, so that no entry is sent as 0


class Int8(Compressor):
    """C(u) = s * round(128 * clip(abs(u), 3/512, 1)) / 128, halves to even, s = -1 where u < 0 and +1 elsewhere.

    The 8-bit exchange of the published code of Lin et al. 2020, arXiv 1808.07217. ``scaled`` multiplies by
    norm1(u) / s of each segment of s entries.

    On the wire: one byte an entry, m - 1 for the magnitude m of a positive one and -m for a negative one; if
    ``scaled``, one scale a segment after them.
    """

    def __init__(self, scaled: bool = False) -> None:
        super().__init__()
        self.scaled = scaled

    def __repr__(self) -> str:
        return f"Int8(scaled={self.scaled})"

    @property
    def is_contraction(self) -> bool:
        return False

    def _parts(self, sizes: tuple[int, ...], dtype: torch.dtype) -> Parts:
        return [("steps", torch.int8, sum(sizes)), ("scales", dtype, len(sizes) * self.scaled)]

    def encode(self, x: Tensor) -> Message:
        message = self._blank(x)
        steps = (x.abs().clamp(SMALLEST, 1) * STEPS).round()
        message.part("steps").copy_(torch.where(x < 0, -steps, steps - 1))
        if self.scaled:
            message.part("scales").copy_(mean_magnitudes(x, message.layout.sizes))
        return message

    def add_to(self, out: Tensor, message: Message, alpha: float | Tensor = 1.0) -> None:
        steps = message.part("steps").to(out.dtype)
        values = torch.where(steps < 0, steps, steps + 1) / STEPS
        if self.scaled:
            scale(values, message.part("scales").to(out.dtype), message.layout.sizes)
        out += values * column(alpha, out)
