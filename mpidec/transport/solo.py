"""One rank alone, without MPI: what runs where no launcher started the program."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from torch import Tensor


class Solo:
    """The transport of a job of one rank. There is nobody to send to, so nothing ever moves."""

    name = "none"
    library = "none"
    rank = 0
    size = 1
    communicator = None

    def exchange(self, send: Tensor, to: Sequence[int], sources: Sequence[int]) -> Solo:
        """Nothing to send: one rank has no peers."""
        assert not [*to, *sources], "a single rank has no peers"
        return self

    def wait(self) -> dict[int, Tensor]:
        """Nothing received."""
        return {}

    def release(self) -> None:
        """No buffers to give back."""

    def all_reduce(self, values: Tensor) -> None:
        """The sum over one rank is what it holds."""

    def all_gather(self, buffer: Tensor) -> list[Tensor]:
        """The own buffer."""
        return [buffer]

    def broadcast(self, values: Tensor, root: int = 0) -> None:
        """The own values."""

    def all_gather_objects(self, value: Any) -> list[Any]:
        """The own value."""
        return [value]

    def broadcast_object(self, value: Any, root: int = 0) -> Any:
        """The own value."""
        return value

    def all_reduce_flags(self, flags: Tensor) -> None:
        """The own flags."""

    def barrier(self) -> None:
        """Nobody to wait for."""

    def abort(self, code: int = 1) -> None:
        """End this process."""
        os._exit(code)
