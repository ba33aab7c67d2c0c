"""One bit an entry and one scale a segment."""

from __future__ import annotations

import torch
from torch import Tensor

from mpidec.compress.base import Compressor, column
from mpidec.compress.bits import pack, packed_bytes, unpack
from mpidec.compress.message import Message, Parts
from mpidec.compress.segments import mean_magnitudes, scale


class Sign(Compressor):
    """C(u) = (norm1(u) / s) * sign(u) for a segment of s entries, sign(0) = +1.

    Karimireddy et al. 2019, arXiv 1901.09847.

    On the wire: the signs of the whole vector, one bit each, padded to 8 bytes, then one scale a segment. With
    ``scaled`` off the signs travel alone, C(u) = sign(u): votes, which a vector of integers can count.

    >>> C, out = Sign(), torch.zeros(4)
    >>> C.add_to(out, C.encode(torch.tensor([1.0, -2.0, 0.0, 5.0])))
    >>> out
    tensor([ 2., -2.,  2.,  2.])
    """

    def __init__(self, scaled: bool = True) -> None:
        super().__init__()
        self.scaled = scaled

    def __repr__(self) -> str:
        return "Sign()" if self.scaled else "Sign(scaled=False)"

    @property
    def is_contraction(self) -> bool:
        return self.scaled

    def delta(self, size: int) -> float | None:
        """1 / s, for a vector of one entry that is not 0; scaled signs only."""
        return 1 / max(1, size) if self.scaled else None

    def _parts(self, sizes: tuple[int, ...], dtype: torch.dtype) -> Parts:
        return [("signs", torch.uint8, packed_bytes(sum(sizes))), ("scales", dtype, len(sizes) * self.scaled)]

    def encode(self, x: Tensor) -> Message:
        message = self._blank(x)
        pack(x >= 0, message.part("signs"))
        if self.scaled:
            message.part("scales").copy_(mean_magnitudes(x, message.layout.sizes))
        return message

    def add_to(self, out: Tensor, message: Message, alpha: float | Tensor = 1.0) -> None:
        bits = unpack(message.part("signs"), out.shape[-1])
        if not out.is_floating_point():
            assert not self.scaled, "integers count votes, no scales"
            assert alpha == 1, "integers count every vote as one"
            out += bits.to(out.dtype).mul_(2).sub_(1)
            return
        signs = bits.to(out.dtype).mul_(2).sub_(1)
        if self.scaled:
            out += scale(signs, message.part("scales").to(out.dtype) * column(alpha, out), message.layout.sizes)
        else:
            out += signs * column(alpha, out)
