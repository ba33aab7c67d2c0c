"""How the places of kept entries are written: as integers, or as a bitmap where that is smaller."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from mpidec.compress.bits import packed_bytes
from mpidec.compress.segments import segments


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
