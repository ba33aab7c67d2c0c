"""Ranks that hold different vectors and want their mean: a gossip rule without any gradient."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from mpidec.consensus.theory import LATE
from mpidec.optim.base import Algorithm, Step
from mpidec.rows import Rows
from mpidec.topology import Topology


class Consensus:
    """The rows of ``x``, shape ``(n, d)``, on their way to the mean of their start ``x0``.

    Row i starts at c + z_i, with c and z_i standard normal: ranks that agree in part, and public copies that know
    nothing yet, as at the start of a training. ``sizes``: entries of each segment, d in all. ``excitation``: how much
    normal noise every round adds to each entry, in the place of gradients.
    """

    def __init__(
        self,
        rule: Algorithm,
        graph: Topology,
        sizes: Sequence[int],
        seed: int = 0,
        excitation: float = 0.0,
        dtype: torch.dtype = torch.float64,
    ) -> None:
        self._random = torch.Generator().manual_seed(seed)
        self.rule, self.excitation = rule, excitation
        self.comm = Rows(graph, seed)
        self.x = self._normal(graph.size, sum(sizes), dtype) + self._normal(1, sum(sizes), dtype)
        self.x0 = self.x.clone()
        rule.compressor.bind(sizes, self.comm.noise)
        with torch.no_grad():
            rule.start(self.x, self.comm)

    def _normal(self, rows: int, columns: int, dtype: torch.dtype) -> Tensor:
        return torch.randn(rows, columns, generator=self._random, dtype=dtype)

    @torch.no_grad()
    def rounds(self, count: int) -> Iterator[int]:
        """Run ``count`` rounds, after every warm-up; after each, its number from 1."""
        nothing = torch.zeros(1, 1, dtype=self.x.dtype).expand_as(self.x)
        for t in range(1, count + 1):
            self.rule.run(self.x, nothing, self.comm, Step(t, LATE), self._excite)
            yield t

    def _excite(self) -> None:
        if self.excitation:
            self.x += self.excitation * self._normal(self.comm.size, self.x.shape[1], dtype=self.x.dtype)

    @property
    def error(self) -> float:
        """Norm of the rows minus the mean of the start, as a fraction of what it was at the start."""
        return _ratio(self.x - self.x0.mean(0), self.x0 - self.x0.mean(0))

    @property
    def spread(self) -> float:
        """Norm of the rows minus their mean now, as a fraction of what it was at the start."""
        return _ratio(self.x - self.x.mean(0), self.x0 - self.x0.mean(0))

    @property
    def bytes_per_rank(self) -> float:
        """Sent so far, in the mean over the ranks."""
        return self.comm.bytes_sent / self.comm.size


def _ratio(now: Tensor, then: Tensor) -> float:
    before = float(then.norm())
    return float(now.norm()) / before if before else 0.0
