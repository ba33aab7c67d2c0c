"""How the fraction of kept entries shrinks over the first epochs."""

from __future__ import annotations

from dataclasses import dataclass

from mpidec.errors import UserError

RATIOS = (0.25, 0.0625, 0.015625, 0.004, 0.001)  # of DGC, arXiv 1712.01887, section 3.3


@dataclass(frozen=True)
class Warmup:
    """``ratio`` from the epoch ``epochs`` on; before it, one after the other and for equally long, those ``ratios``
    that are not below it.

    Raises ``UserError`` for a ratio outside (0, 1] and for negative ``epochs``.

    >>> warmup = Warmup(0.01, epochs=3)
    >>> [warmup.at(epoch) for epoch in (0.5, 1.5, 2.5, 3.5)]
    [0.25, 0.0625, 0.015625, 0.01]
    """

    ratio: float
    epochs: float = 0.0
    ratios: tuple[float, ...] = RATIOS

    def __post_init__(self) -> None:
        for one in (self.ratio, *self.ratios):
            if not 0 < one <= 1:
                raise UserError(f"ratio is the fraction of entries kept, above 0 and at most 1: got {one}")
        if not 0 <= self.epochs < float("inf"):
            raise UserError(f"a warm-up lasts a number of epochs, 0 for none: got {self.epochs}")

    def at(self, epoch: float) -> float:
        """The fraction of entries kept in ``epoch``, counted from 0."""
        stages = [one for one in self.ratios if one >= self.ratio]
        for number, one in enumerate(stages, start=1):
            if epoch < number / len(stages) * self.epochs:
                return one
        return self.ratio
