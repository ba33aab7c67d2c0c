"""Whole values: the identity, and 16-bit forms on the wire."""

from __future__ import annotations

import torch
from torch import Tensor

from mpidec.compress.base import Compressor, column
from mpidec.compress.message import Message, Parts


class Identity(Compressor):
    """C(u) = u, rounded to ``wire`` where one is given (``torch.float16`` or ``torch.bfloat16``).

    On the wire: item * s bytes, with item the bytes of one value. float16 turns values above 65,504 into infinity.

    >>> C = Identity(torch.bfloat16)
    >>> C.encode(torch.ones(8)).nbytes  # 16 bytes of header
    32
    """

    def __init__(self, wire: torch.dtype | None = None) -> None:
        super().__init__()
        self.wire = wire
        self.summable = wire is None

    def __repr__(self) -> str:
        return f"Identity({self.wire or ''})"

    @property
    def is_unbiased(self) -> bool:
        """Up to the rounding of the wire."""
        return True

    def delta(self, size: int) -> float | None:
        """1; with a 16-bit wire nothing, since values outside its range are lost."""
        return 1.0 if self.wire is None else None

    def _parts(self, sizes: tuple[int, ...], dtype: torch.dtype) -> Parts:
        return [("values", self.wire or dtype, sum(sizes))]

    def encode(self, x: Tensor) -> Message:
        message = self._blank(x)
        message.part("values").copy_(x)
        return message

    def add_to(self, out: Tensor, message: Message, alpha: float | Tensor = 1.0) -> None:
        # Multiply, then add: a fused add would round differently in the vectorised body and in the tail of a loop,
        # and a row of a simulation would no longer equal the rank that it stands for.
        out += message.part("values").to(out.dtype) * column(alpha, out)


def float16() -> Identity:
    """The identity with IEEE half precision on the wire."""
    return Identity(torch.float16)


def bfloat16() -> Identity:
    """The identity with bfloat16 on the wire."""
    return Identity(torch.bfloat16)
