"""What moves bytes between ranks. Knows messages only as buffers, and weights and rules not at all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from torch import Tensor


class Exchange(Protocol):
    """A posted exchange. It keeps its buffers alive until they are released."""

    def wait(self) -> dict[int, Tensor]:
        """The received buffers by sender, once all have arrived and the own one has been sent."""

    def release(self) -> None:
        """Give the received buffers back, to be written by a later exchange."""


class Collectives(Protocol):
    """Operations in which every rank takes part. ``name`` is what a summary calls them; ``size`` counts the ranks."""

    name: str
    size: int

    def all_reduce(self, values: Tensor) -> None:
        """Replace ``values``, of a dtype of at least 32 bits, by their sum over the ranks, bit-equal on all of them."""

    def all_gather(self, buffer: Tensor) -> list[Tensor]:
        """The ``buffer`` of every rank, uint8 of one size, by rank."""

    def broadcast(self, values: Tensor, root: int = 0) -> None:
        """Replace ``values`` by those of rank ``root``."""


class Transport(Collectives, Protocol):
    """Point-to-point exchange, the collectives, and small Python objects."""

    rank: int
    library: str
    communicator: Any

    def exchange(self, send: Tensor, to: Sequence[int], sources: Sequence[int]) -> Exchange:
        """Send ``send`` (uint8, contiguous) to each rank of ``to``; receive as many bytes from each of ``sources``."""

    def all_gather_objects(self, value: Any) -> list[Any]:
        """The ``value`` of every rank, by rank."""

    def broadcast_object(self, value: Any, root: int = 0) -> Any:
        """The ``value`` of rank ``root``."""

    def all_reduce_flags(self, flags: Tensor) -> None:
        """Replace ``flags`` (bool, on the CPU) by whether any rank has them set."""

    def barrier(self) -> None:
        """Wait for every rank."""

    def abort(self, code: int = 1) -> None:
        """End every rank of the job at once."""
