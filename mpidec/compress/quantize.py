"""Random rounding to a few levels."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from mpidec.compress.base import Compressor, column
from mpidec.compress.bits import pack, packed_bytes, unpack
from mpidec.compress.message import Message, Parts
from mpidec.compress.segments import norms, scale, segments
from mpidec.errors import UserError


class QSGD(Compressor):
    """Quantization to L = 2^bits - 1 levels (Alistarh et al. 2017, arXiv 1610.02132).

    C(u) = norm2(u) * sign(u) * level / L,  level = floor(L abs(u) / norm2(u)) + [uniform < remainder].

    ``contraction``, the default, divides by 1 + min(s / L^2, sqrt(s) / L), which makes it a contraction, as CHOCO-SGD's
    analysis asks (Koloskova et al. 2019, arXiv 1902.00340); without it the operator is unbiased. On the wire: the signs
    and each of the ``bits`` bits of the levels as a packed plane over the whole vector, then one norm a segment.

    Raises ``UserError`` for ``bits`` outside 1 .. 8.
    """

    def __init__(self, bits: int = 8, contraction: bool = True) -> None:
        super().__init__()
        if not 1 <= bits <= 8:
            raise UserError(f"qsgd writes 1 to 8 bits a level: got bits = {bits}")
        self.bits, self.contraction = bits, contraction

    def __repr__(self) -> str:
        return f"QSGD({self.bits}, {self.contraction})"

    @property
    def is_unbiased(self) -> bool:
        return not self.contraction

    @property
    def is_contraction(self) -> bool:
        """The variance is at most the excess times norm2(u)^2, so many bits make a contraction by themselves."""
        return self.contraction or (self.bound and all(self._excess(size) < 1 for size in self._sizes or ()))

    def delta(self, size: int) -> float | None:
        """1 / (1 + excess) of the contraction, 1 - excess of the unbiased form, where that is above 0."""
        excess = self._excess(size)
        return 1 / (1 + excess) if self.contraction else (1 - excess if excess < 1 else None)

    def _parts(self, sizes: tuple[int, ...], dtype: torch.dtype) -> Parts:
        planes = (1 + self.bits) * packed_bytes(sum(sizes))
        return [("planes", torch.uint8, planes), ("norms", dtype, len(sizes))]

    def encode(self, x: Tensor) -> Message:
        message = self._blank(x)
        sizes, each = message.layout.sizes, norms(x, message.layout.sizes)
        message.part("norms").copy_(each)
        levels = x.abs().mul_(self._levels)
        for i, place in enumerate(segments(sizes)):
            # A zero segment is divided by 1 and stays zero.
            levels[..., place] /= each[..., i : i + 1].where(each[..., i : i + 1] > 0, 1)
        whole = levels.floor()
        whole += self.noise(x) < levels - whole
        # Rounding can lift the one entry that equals its norm above the top level.
        levels = whole.clamp_(max=self._levels).to(torch.uint8)
        planes = self._planes(message)
        pack(x >= 0, planes[..., 0, :])
        for bit in range(self.bits):
            pack((levels >> bit) & 1 == 1, planes[..., 1 + bit, :])
        return message

    def add_to(self, out: Tensor, message: Message, alpha: float | Tensor = 1.0) -> None:
        planes = self._planes(message)
        values = unpack(planes[..., 1, :], out.shape[-1])
        for bit in range(1, self.bits):
            values |= unpack(planes[..., 1 + bit, :], out.shape[-1]) << bit
        decoded = unpack(planes[..., 0, :], out.shape[-1]).to(out.dtype).mul_(2).sub_(1)
        decoded *= values
        factors = message.part("norms").to(out.dtype) / self._levels * column(alpha, out)
        shrinkage = [self._shrinkage(size) for size in message.layout.sizes]
        factors /= torch.tensor(shrinkage, dtype=out.dtype, device=out.device)
        out += scale(decoded, factors, message.layout.sizes)

    @property
    def _levels(self) -> int:
        levels: int = 2**self.bits - 1
        return levels

    def _planes(self, message: Message) -> Tensor:
        """The signs, then the bits of the levels from the lowest on: shape ``(..., 1 + bits, bytes of one plane)``."""
        planes = message.part("planes")
        return planes.view(*planes.shape[:-1], 1 + self.bits, -1)

    def _shrinkage(self, size: int) -> float:
        return 1 + self._excess(size) if self.contraction else 1.0

    def _excess(self, size: int) -> float:
        return min(size / self._levels**2, math.sqrt(size) / self._levels)
