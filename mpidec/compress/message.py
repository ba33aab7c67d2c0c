"""What travels: one contiguous buffer of bytes, a small header in front, then the fields of the compressor.

The size of a message depends on the compressor, the segments and the dtype, never on the data, so that a receiver can
post its buffer before the sender has started.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

if TYPE_CHECKING:
    from mpidec.compress.base import Compressor

HEADER_BYTES = 16  # step: uint32, flags: uint32, layout hash: uint64
Parts = Sequence[tuple[str, torch.dtype, int]]  # name, dtype and number of values of each field, in their order
ALIGNMENT = 8  # bytes; every field starts at a multiple of it


@dataclass(frozen=True)
class Field:
    """Where one part of the payload lies: ``count`` values of ``dtype`` from byte ``offset`` on."""

    offset: int
    dtype: torch.dtype
    count: int


@dataclass(frozen=True)
class Layout:
    """The fields of a message, their places, the total size in bytes, and a hash that both ends must agree on."""

    sizes: tuple[int, ...]
    dtype: torch.dtype
    fields: dict[str, Field]
    nbytes: int
    digest: int

    @classmethod
    def of(cls, codec: str, sizes: Sequence[int], dtype: torch.dtype, parts: Parts) -> Layout:
        """Lay out ``parts`` (name, dtype, count) one after the other; ``codec`` enters the hash only."""
        fields, end = {}, HEADER_BYTES
        for name, part_dtype, count in parts:
            fields[name] = Field(end, part_dtype, count)
            end += -(-count * part_dtype.itemsize // ALIGNMENT) * ALIGNMENT
        identity = repr((codec, tuple(sizes), str(dtype), end)).encode()
        digest = int.from_bytes(hashlib.sha256(identity).digest()[:8], "little", signed=True)
        return cls(tuple(sizes), dtype, fields, end, digest)


class Header(NamedTuple):
    """What a message says of itself, ``flags`` as in ``mpidec.communicator``."""

    step: int
    flags: int
    layout: int


@dataclass(frozen=True, eq=False)
class Message:
    """``buffer``: uint8 of shape ``(..., nbytes)``; leading dimensions are ranks of a simulation."""

    buffer: Tensor
    layout: Layout
    codec: Compressor = field(repr=False)

    @classmethod
    def empty(cls, layout: Layout, codec: Compressor, leading: Sequence[int], device: torch.device) -> Message:
        """A message whose fields are still to be written; its padding is 0, so that equal content is equal bytes."""
        return cls(torch.zeros(*leading, layout.nbytes, dtype=torch.uint8, device=device), layout, codec)

    @property
    def nbytes(self) -> int:
        """Bytes that one rank hands to the transport for one receiver, header included."""
        return self.layout.nbytes

    @cached_property
    def support(self) -> Tensor | None:
        """The coordinates that the message touches, int64 of shape ``(..., k)`` into the flat vector; ``None``: all."""
        return self.codec.support(self)

    def part(self, name: str) -> Tensor:
        """The field ``name`` as a view of the buffer, shape ``(..., count)``."""
        field = self.layout.fields[name]
        return self.buffer[..., field.offset : field.offset + field.count * field.dtype.itemsize].view(field.dtype)

    def with_values(self, values: Tensor) -> Message:
        """The message for a vector with other ``values`` on this support, shape ``(..., k)`` in its order.

        A dense one takes all of them, shape ``(..., d)``.
        """
        return self.codec.with_values(self, values)

    def with_buffer(self, buffer: Tensor) -> Message:
        """The same layout around other bytes: a received message, or some rows of a simulated one."""
        return Message(buffer, self.layout, self.codec)

    def rows(self, index: Tensor) -> Message:
        """The messages of some ranks of a simulation, int64; what the whole has worked out of its support is kept."""
        some = self.with_buffer(self.buffer[index])
        if (known := self.__dict__.get("support")) is not None:
            some.__dict__["support"] = known[index]
        return some

    def stamp(self, step: int, flags: int = 0) -> None:
        """Write the header."""
        words = self.buffer[..., :HEADER_BYTES]
        words[..., :8].view(torch.int32)[...] = torch.tensor(
            [step & 0x7FFFFFFF, flags], dtype=torch.int32, device=words.device
        )
        words[..., 8:].view(torch.int64)[...] = self.layout.digest

    @property
    def header(self) -> Header:
        """The header as it arrived."""
        step, flags = self.buffer[..., :8].view(torch.int32).tolist()
        (layout,) = self.buffer[..., 8:HEADER_BYTES].view(torch.int64).tolist()
        return Header(step, flags, layout)
