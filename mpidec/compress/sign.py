"""One bit an entry and one scale a segment."""

from __future__ import annotations

import torch
from torch import Tensor

from mpidec.compress.base import Compressor, column, segments, total
from mpidec.compress.bits import pack, packed_bytes, unpack
from mpidec.compress.message import Message, Parts


class Sign(Compressor):
    """C(u) = (norm1(u) / s) * sign(u) for a segment of s entries, sign(0) = +1.

    Karimireddy et al. 2019, arXiv 1901.09847.

    On the wire: the signs of the whole vector, one bit each, padded to 8 bytes, then one scale a segment.

    >>> C, out = Sign(), torch.zeros(4)
    >>> C.add_to(out, C.encode(torch.tensor([1.0, -2.0, 0.0, 5.0])))
    >>> out
    tensor([ 2., -2.,  2.,  2.])
    """

    def __repr__(self) -> str:
        return "Sign()"

    def _parts(self, sizes: tuple[int, ...], dtype: torch.dtype) -> Parts:
        return [("signs", torch.uint8, packed_bytes(sum(sizes))), ("scales", dtype, len(sizes))]

    def encode(self, x: Tensor) -> Message:
        message = self._blank(x)
        pack(x >= 0, message.part("signs"))
        scales, magnitudes = message.part("scales"), x.abs()
        for i, segment in enumerate(segments(message.layout.sizes)):
            # An empty segment has the scale 0, not 0 / 0.
            scales[..., i] = total(magnitudes[..., segment]) / max(1, segment.stop - segment.start)
        return message

    def add_to(self, out: Tensor, message: Message, alpha: float | Tensor = 1.0) -> None:
        signs = unpack(message.part("signs"), out.shape[-1]).to(out.dtype).mul_(2).sub_(1)
        scales = message.part("scales").to(out.dtype) * column(alpha, out)
        for i, segment in enumerate(segments(message.layout.sizes)):
            signs[..., segment] *= scales[..., i : i + 1]
        out += signs
