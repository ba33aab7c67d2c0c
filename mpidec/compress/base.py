"""The contract of a compressor: ``encode`` makes a message, ``add_to`` scales and accumulates its content."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import Tensor

from mpidec.compress.message import Layout, Message, Parts
from mpidec.spans import Span


class Noise(Protocol):
    """Uniform draws in ``[0, 1)`` for the entries of ``like``, shape ``(..., d)``."""

    def __call__(self, like: Tensor) -> Tensor: ...


def _generator_noise(like: Tensor) -> Tensor:
    return torch.rand_like(like)


class Compressor(ABC):
    """How a flat vector is written in bytes, each of its segments (parameter tensors) on its own.

    Works on the last dimension; leading dimensions are the ranks of a simulation. ``summable`` says that an all-reduce
    may sum the payload as it is; ``sparse``, that a message touches some coordinates only; ``counts_epochs``, that the
    messages change with the epoch.
    """

    summable = False
    sparse = False
    counts_epochs = False

    def __init__(self) -> None:
        self._sizes: tuple[int, ...] | None = None
        self._layouts: dict[tuple[torch.dtype, int], Layout] = {}
        self.noise: Noise = _generator_noise
        self._recorded = False

    def bind(self, sizes: Sequence[int], noise: Noise | None = None, span: Callable[[str], Span] | None = None) -> None:
        """Fix the ``sizes`` of the segments, in entries, and the ``noise``; unbound, a vector is one segment.

        Inside a ``span``, where one is given, runs every ``encode`` from here on.
        """
        self._sizes = tuple(sizes)
        self._layouts.clear()
        self.noise = noise or _generator_noise
        if self._recorded:
            del vars(self)["encode"]
        self._recorded = span is not None
        if span is not None:
            # On this object alone: what nobody records costs nothing, and no class of a compressor knows of it.
            vars(self)["encode"] = _inside(span, self.encode)

    @property
    def bound(self) -> bool:
        """Whether the segments are fixed."""
        return self._sizes is not None

    @property
    def is_unbiased(self) -> bool:
        """Whether the mean of C(u) over the draws is u."""
        return False

    @property
    def is_contraction(self) -> bool:
        """Whether norm2(C(u) - u)^2 is below norm2(u)^2, in the mean over the draws: what an error memory needs."""
        return True

    def delta(self, size: int) -> float | None:
        """The largest delta in E norm2(C(u) - u)^2 <= (1 - delta) norm2(u)^2 that is proved for every u of ``size``.

        ``None`` where none above 0 is known.
        """
        return None

    def at(self, epoch: float) -> None:  # noqa: B027 - a hook that most have no use for
        """What is encoded from here on belongs to ``epoch``."""

    @abstractmethod
    def encode(self, x: Tensor) -> Message:
        """The message for ``x``, shape ``(..., d)``, in its dtype."""

    @abstractmethod
    def add_to(self, out: Tensor, message: Message, alpha: float | Tensor = 1.0) -> None:
        """``out += alpha * decode(message)`` in place; ``alpha`` may be a column, one factor for each leading row."""

    @abstractmethod
    def _parts(self, sizes: tuple[int, ...], dtype: torch.dtype) -> Parts:
        """The fields of a message: name, dtype and number of values."""

    def support(self, message: Message) -> Tensor | None:
        """See ``Message.support``; a dense message touches every coordinate."""
        return None

    def with_values(self, message: Message, values: Tensor) -> Message:
        """See ``Message.with_values``; a dense message is encoded anew."""
        return self.encode(values)

    def layout(self, numel: int, dtype: torch.dtype) -> Layout:
        """Fields and size of the messages for a vector of ``numel`` entries of ``dtype``."""
        key = dtype, numel
        if key not in self._layouts:
            sizes = self.sizes(numel)
            self._layouts[key] = Layout.of(repr(self), sizes, dtype, self._parts(sizes, dtype))
        return self._layouts[key]

    def sizes(self, numel: int) -> tuple[int, ...]:
        """Entries of each segment of a vector of ``numel``."""
        sizes = self._sizes or (numel,)
        assert sum(sizes) == numel, f"bound to segments of {sum(sizes)} entries, got a vector of {numel}"
        return sizes

    def _blank(self, x: Tensor) -> Message:
        return Message.empty(self.layout(x.shape[-1], x.dtype), self, x.shape[:-1], x.device)


def _inside(span: Callable[[str], Span], encode: Callable[[Tensor], Message]) -> Callable[[Tensor], Message]:
    def encode_inside(x: Tensor) -> Message:
        with span("encode") as one:
            message = encode(x)
            one.nbytes = message.nbytes
        return message

    return encode_inside


def column(alpha: float | Tensor, like: Tensor) -> float | Tensor:
    """``alpha`` in the dtype of ``like``, of 32 bits at least, so that a simulated row and a real rank round alike."""
    return alpha.to(like.dtype).reshape(-1, 1) if isinstance(alpha, Tensor) else alpha
