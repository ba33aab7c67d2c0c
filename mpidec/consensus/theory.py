"""What is proved of CHOCO-Gossip (Koloskova et al. 2019, arXiv 1902.00340, Theorem 2), and what of exact averaging."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from mpidec.compress.base import Compressor
from mpidec.optim.base import Algorithm
from mpidec.optim.choco import CHOCO
from mpidec.optim.dpsgd import DPSGD
from mpidec.rows import Rows
from mpidec.topology import Topology
from mpidec.topology.weights import metropolis_hastings

LATE = float("inf")  # an epoch after every warm-up
LONGEST = 2**22  # entries of which is measured what a message carries, of a larger segment
NOTHING = 1e-12  # of norm2(u)^2: what is left when nothing is, but for rounding
REPEATS = 4  # encodings of what the ones before have left


@dataclass(frozen=True)
class Guarantee:
    """The consensus step size that a theorem asks for, and the factor by which the distance then shrinks a round.

    ``gamma`` is ``None`` for exact averaging, whose rate is 1 - spectral gap. For CHOCO the theorem bounds the square
    of the distance, with that of the public copies added, by a factor of ``1 - rho^2 delta / 82`` a round; ``rate`` is
    its root.
    """

    gamma: float | None
    rate: float

    @classmethod
    def of(cls, rule: Algorithm, graph: Topology, sizes: Sequence[int]) -> Guarantee | None:
        """For segments of ``sizes``; ``None`` where nothing is proved: other rules, graphs that change, no delta."""
        if graph.period > 1:
            return None
        if isinstance(rule, DPSGD):
            return cls(None, 1 - graph.spectral_gap)
        deltas = [rule.compressor.delta(size) for size in sizes]
        known = [delta for delta in deltas if delta is not None]
        if not isinstance(rule, CHOCO) or len(known) < len(deltas):
            return None
        return cls.choco(graph.spectral_gap, graph.beta, min(known))

    @classmethod
    def choco(cls, rho: float, beta: float, delta: float) -> Guarantee:
        """By spectral gap, ``||I - W||_2``, and ``Compressor.delta``."""
        below = 16 * rho + rho**2 + 4 * beta**2 + 2 * rho * beta**2 - 8 * rho * delta
        return cls(rho**2 * delta / below, (1 - rho**2 * delta / 82) ** 0.5)


@torch.no_grad()
def carried(compressor: Compressor, sizes: Sequence[int], seed: int = 0) -> float:
    """The share of norm2(u)^2 that one message of the longest segment carries, for u that messages have worn down.

    u starts normal and loses what each of ``REPEATS`` messages says; the share of the last is taken. It is what is met
    with, not what is guaranteed (``Compressor.delta``): signs of s entries carry about an eighth, and
    1 / s in the worst case. ``compressor`` must be of no further use.
    """
    size = min(max(sizes), LONGEST)
    rows = max(1, min(64, 2**16 // size))
    comm = Rows(Topology("apart", metropolis_hastings(rows, ())), seed)
    compressor.bind([size], comm.noise)
    compressor.at(LATE)
    u = torch.randn(rows, size, generator=torch.Generator().manual_seed(seed))
    start = before = after = float(u.square().sum())
    for comm.step in range(1, REPEATS + 1):
        before = after
        compressor.add_to(u, compressor.encode(u), -1.0)
        after = float(u.square().sum())
        if after <= NOTHING * start:
            return 1.0
    return 1 - after / before
