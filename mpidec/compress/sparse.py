"""A few entries and where they stand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from mpidec.compress.base import Compressor, column, segments
from mpidec.compress.bits import pack, packed_bytes, unpack
from mpidec.compress.message import Message, Parts
from mpidec.errors import UserError


@dataclass(frozen=True)
class Plan:
    """How many entries of each segment are kept, and how their places are written.

    A segment's places are counted from its own start: int32 below 2^31 entries, int64 from there on, so they are exact
    at every size; or a bitmap over the segment where that takes fewer bytes.
    """

    sizes: tuple[int, ...]
    kept: tuple[int, ...]

    @cached_property
    def forms(self) -> tuple[str, ...]:
        """``bitmap``, ``int32`` or ``int64`` for each segment."""
        return tuple(self._form(size, kept) for size, kept in zip(self.sizes, self.kept, strict=True))

    @staticmethod
    def _form(size: int, kept: int) -> str:
        index = "int32" if size <= 2**31 else "int64"
        item = 4 if index == "int32" else 8
        return "bitmap" if packed_bytes(size) < item * kept else index

    def count(self, form: str) -> int:
        """Values of the field ``form``: integers, or bytes of bitmaps."""
        chosen = [(s, k) for s, k, f in zip(self.sizes, self.kept, self.forms, strict=True) if f == form]
        return sum(packed_bytes(size) if form == "bitmap" else kept for size, kept in chosen)

    @cached_property
    def places(self) -> list[tuple[str, slice, int]]:
        """For each segment: its form, its slice of the field of that form, and its start in the flat vector."""
        ends, places = dict.fromkeys(("bitmap", "int32", "int64"), 0), []
        for form, segment, kept in zip(self.forms, segments(self.sizes), self.kept, strict=True):
            length = packed_bytes(segment.stop - segment.start) if form == "bitmap" else kept
            places.append((form, slice(ends[form], ends[form] + length), segment.start))
            ends[form] += length
        return places


class TopK(Compressor):
    """The k = max(1, int(s * ratio)) entries of largest magnitude of a segment of s entries; ties: lowest index.

    NaN counts as the largest magnitude, so that it travels and is seen. On the wire: all kept values in the order of
    their places, then the places (see ``Plan``). Stich et al. 2018, arXiv 1809.07599.

    Raises ``UserError`` for a ``ratio`` outside (0, 1].

    >>> C = TopK(ratio=0.5)
    >>> C.encode(torch.tensor([1.0, -3.0, 3.0, 2.0])).support
    tensor([1, 2])
    """

    def __init__(self, ratio: float = 0.01) -> None:
        super().__init__()
        if not 0 < ratio <= 1:
            raise UserError(f"ratio is the fraction of entries kept, above 0 and at most 1: got {ratio}")
        self.ratio = ratio
        self._plans: dict[tuple[int, ...], Plan] = {}

    def __repr__(self) -> str:
        return f"TopK({self.ratio})"

    def plan(self, sizes: Sequence[int]) -> Plan:
        """Kept entries and forms for segments of the given ``sizes``."""
        sizes = tuple(sizes)
        if sizes not in self._plans:
            self._plans[sizes] = Plan(sizes, tuple(min(s, max(1, int(s * self.ratio))) for s in sizes))
        return self._plans[sizes]

    def _parts(self, sizes: tuple[int, ...], dtype: torch.dtype) -> Parts:
        plan = self.plan(sizes)
        return [
            ("values", dtype, sum(plan.kept)),
            ("int64", torch.int64, plan.count("int64")),
            ("int32", torch.int32, plan.count("int32")),
            ("bitmap", torch.uint8, plan.count("bitmap")),
        ]

    def encode(self, x: Tensor) -> Message:
        message = self._blank(x)
        plan, values, filled = self.plan(message.layout.sizes), message.part("values"), 0
        for segment, kept, (form, place, _) in zip(segments(plan.sizes), plan.kept, plan.places, strict=True):
            largest = _largest(x[..., segment], kept)
            indices = largest.nonzero()[:, -1].reshape(*x.shape[:-1], kept)
            values[..., filled : filled + kept] = x[..., segment].gather(-1, indices)
            filled += kept
            if form == "bitmap":
                pack(largest, message.part(form)[..., place])
            else:
                message.part(form)[..., place] = indices
        return message

    def support(self, message: Message) -> Tensor:
        plan, parts = self.plan(message.layout.sizes), []
        for size, kept, (form, place, start) in zip(plan.sizes, plan.kept, plan.places, strict=True):
            written = message.part(form)[..., place]
            if form == "bitmap":
                written = unpack(written, size).nonzero()[:, -1].reshape(*written.shape[:-1], kept)
            parts.append(written.to(torch.int64) + start)
        return torch.cat(parts, dim=-1)

    def with_values(self, message: Message, values: Tensor) -> Message:
        other = message.with_buffer(message.buffer.clone())
        other.part("values").copy_(values)
        return other

    def add_to(self, out: Tensor, message: Message, alpha: float | Tensor = 1.0) -> None:
        values = message.part("values").to(out.dtype) * column(alpha, out)
        out.scatter_add_(-1, self.support(message), values)


def _largest(x: Tensor, count: int) -> Tensor:
    """Where the ``count`` largest magnitudes of the last dimension stand, the lowest index first among equals."""
    if count == x.shape[-1]:
        return torch.ones_like(x, dtype=torch.bool)
    magnitudes = x.abs().nan_to_num_(nan=torch.inf, posinf=torch.inf)
    threshold = magnitudes.topk(count, dim=-1, sorted=True).values[..., -1:]
    above, equal = magnitudes > threshold, magnitudes == threshold
    room = count - above.sum(-1, keepdim=True)
    return above | (equal & (equal.cumsum(-1) <= room))
