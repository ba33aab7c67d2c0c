"""A few entries of each segment: the largest ones, or random ones."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from mpidec.compress.base import Compressor, column
from mpidec.compress.bits import pack, unpack
from mpidec.compress.message import Message, Parts
from mpidec.compress.places import Plan
from mpidec.compress.schedule import RATIOS, Warmup
from mpidec.compress.segments import segments
from mpidec.noise import distinct


class Sparse(Compressor):
    """What sparse compressors share: k = max(1, int(s * ratio)) of the s entries of a segment are kept.

    ``ratio`` is the fraction kept from the epoch ``warmup_epochs`` on. Before it the fractions ``warmup_ratios`` hold,
    as far as they are not below ``ratio``, each for an equal part of the warm-up (Lin et al. 2018, arXiv 1712.01887).

    Raises ``UserError`` for a ratio outside (0, 1], and for a negative ``warmup_epochs``.
    """

    sparse = True

    def __init__(
        self, ratio: float = 0.01, warmup_epochs: float = 0.0, warmup_ratios: Sequence[float] = RATIOS
    ) -> None:
        super().__init__()
        self.warmup = Warmup(ratio, warmup_epochs, tuple(warmup_ratios))
        self.counts_epochs = warmup_epochs > 0
        self.ratio = self.warmup.at(0)

    def __repr__(self) -> str:
        warmup = f", warmup_epochs={self.warmup.epochs}, now {self.ratio}" if self.counts_epochs else ""
        return f"{type(self).__name__}({self.warmup.ratio}{warmup})"

    def at(self, epoch: float) -> None:
        if self.warmup.at(epoch) != self.ratio:
            self.ratio = self.warmup.at(epoch)
            self._layouts.clear()

    def kept(self, sizes: Sequence[int]) -> tuple[int, ...]:
        """Entries that are kept of segments of the given ``sizes``."""
        return tuple(min(s, max(1, int(s * self.ratio))) for s in sizes)

    def delta(self, size: int) -> float | None:
        """The share kept, of random entries in the mean over the draws; for values that are sent as they are."""
        return None if self.is_unbiased else self.kept([size])[0] / max(1, size)

    @abstractmethod
    def support(self, message: Message) -> Tensor:
        """See ``Message.support``."""

    def with_values(self, message: Message, values: Tensor) -> Message:
        other = message.with_buffer(message.buffer.clone())
        other.part("values").copy_(values)
        return other

    def add_to(self, out: Tensor, message: Message, alpha: float | Tensor = 1.0) -> None:
        values = message.part("values").to(out.dtype) * column(alpha, out)
        out.scatter_add_(-1, _places(message), values)


class TopK(Sparse):
    """The entries of largest magnitude of each segment; ties: lowest index. See ``Sparse`` for the arguments.

    NaN counts as the largest magnitude, so that it travels and is seen. On the wire: all kept values in the order of
    their places, then the places (see ``Plan``). Stich et al. 2018, arXiv 1809.07599.

    >>> C = TopK(ratio=0.5)
    >>> C.encode(torch.tensor([1.0, -3.0, 3.0, 2.0])).support
    tensor([1, 2])
    """

    def __init__(
        self, ratio: float = 0.01, warmup_epochs: float = 0.0, warmup_ratios: Sequence[float] = RATIOS
    ) -> None:
        super().__init__(ratio, warmup_epochs, warmup_ratios)
        self._plans: dict[tuple[tuple[int, ...], float], Plan] = {}

    def plan(self, sizes: Sequence[int]) -> Plan:
        """Kept entries and forms for segments of the given ``sizes``."""
        key = tuple(sizes), self.ratio
        if key not in self._plans:
            self._plans[key] = Plan(key[0], self.kept(sizes))
        return self._plans[key]

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


class RandomK(Sparse):
    """Random entries of each segment, in every step and on every rank others. See ``Sparse`` for the other arguments.

    ``contraction``, the default, sends them as they are; without it they are multiplied by s / k, which makes the
    operator unbiased (Stich et al. 2018, arXiv 1809.07599). On the wire: the values, and 8 bytes from which both ends
    draw the same places.
    """

    def __init__(
        self,
        ratio: float = 0.01,
        contraction: bool = True,
        warmup_epochs: float = 0.0,
        warmup_ratios: Sequence[float] = RATIOS,
    ) -> None:
        super().__init__(ratio, warmup_epochs, warmup_ratios)
        self.contraction = contraction

    def __repr__(self) -> str:
        return super().__repr__()[:-1] + f", contraction={self.contraction})"

    @property
    def is_unbiased(self) -> bool:
        return not self.contraction

    @property
    def is_contraction(self) -> bool:
        """Unbiased, the variance is s / k - 1 times norm2(u)^2."""
        return self.contraction or self.ratio > 0.5

    def _parts(self, sizes: tuple[int, ...], dtype: torch.dtype) -> Parts:
        return [("key", torch.int64, 1), ("values", dtype, sum(self.kept(sizes)))]

    def encode(self, x: Tensor) -> Message:
        message = self._blank(x)
        # 48 bits of this rank's and this step's draws.
        draws = self.noise(torch.empty(*x.shape[:-1], 2, dtype=torch.float64, device=x.device))
        high, low = (draws * 2**24).to(torch.int64).unbind(-1)
        message.part("key").copy_(((high << 24) + low).unsqueeze(-1))
        message.part("values").copy_(self._scaled(x.gather(-1, _places(message)), message))
        return message

    def with_values(self, message: Message, values: Tensor) -> Message:
        return super().with_values(message, self._scaled(values, message))

    def support(self, message: Message) -> Tensor:
        sizes, key, parts = message.layout.sizes, message.part("key"), []
        for number, (segment, kept) in enumerate(zip(segments(sizes), self.kept(sizes), strict=True)):
            parts.append(distinct(key, number, kept, segment.stop - segment.start) + segment.start)
        return torch.cat(parts, dim=-1)

    def _scaled(self, values: Tensor, message: Message) -> Tensor:
        if self.contraction:
            return values
        sizes = message.layout.sizes
        factors = [s / k for s, k in zip(sizes, self.kept(sizes), strict=True) for _ in range(k)]
        return values * torch.tensor(factors, dtype=values.dtype, device=values.device)


def _places(message: Message) -> Tensor:
    """The support, which a message works out once."""
    places = message.support
    assert places is not None, "a sparse message touches some coordinates only"
    return places


def _largest(x: Tensor, count: int) -> Tensor:
    """Where the ``count`` largest magnitudes of the last dimension stand, the lowest index first among equals."""
    if count == x.shape[-1]:
        return torch.ones_like(x, dtype=torch.bool)
    magnitudes = x.abs().nan_to_num_(nan=torch.inf, posinf=torch.inf)
    threshold = magnitudes.topk(count, dim=-1, sorted=True).values[..., -1:]
    above, equal = magnitudes > threshold, magnitudes == threshold
    room = count - above.sum(-1, keepdim=True)
    return above | (equal & (equal.cumsum(-1) <= room))
