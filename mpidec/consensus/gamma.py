"""The largest consensus step size under which a rule is stable: a short search on a small consensus problem."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

import torch

from mpidec.consensus.problem import Consensus
from mpidec.consensus.theory import Guarantee, carried
from mpidec.errors import UserError
from mpidec.optim.base import Algorithm
from mpidec.topology import Topology

Rule = Callable[[float], Algorithm]  # a new one with the given gamma

GRID = tuple(2 ** (-half / 2) for half in range(24))  # 1 to 0.0003
ENTRIES = 2**14  # of all ranks together: what keeps a search within seconds
FEWEST = 256  # of all ranks together: tiny layers are repeated
SHORTEST = 64  # entries below which no segment is shortened
KINDS = 4  # of segments: many layers tell no more than a few of different sizes
ROUNDS = range(100, 301)
EVERY = 5  # rounds at which the spread is looked at
EXCITATION = 0.02
BURST = 2.0  # spread, of that at the start, at which a trial is given up
WORSE = 1.25  # times the least spread of all trials that a stable one may leave
SETTLED = 0.1  # spread below which the noise of the rounds decides which quarter has the larger one
MARGIN = 0.5


@dataclass(frozen=True)
class Trial:
    """The mean spread under ``gamma`` in the second and in the last quarter, start = 1; ``inf``: given up."""

    gamma: float
    halfway: float
    end: float


@dataclass(frozen=True)
class Search:
    """What was tried, from the largest gamma down.

    ``sizes``: of the segments that were simulated. ``correction``: what one message of a whole segment carries, as a
    share of what one of the shortened segments does; 1 at most. ``margin``: the share of the largest stable value that
    is taken. ``guaranteed``: what a theorem asks for, where there is one.
    """

    trials: tuple[Trial, ...]
    rounds: int
    sizes: tuple[int, ...]
    correction: float
    guaranteed: float | None
    margin: float = MARGIN

    @property
    def silent(self) -> float:
        """The spread in the last quarter of ranks that tell each other nothing."""
        return math.sqrt(1 + 7 / 8 * self.rounds * EXCITATION**2)

    def stable(self, trial: Trial) -> bool:
        """Whether the ranks come together, and about as close as under any other value."""
        least = min(other.end for other in self.trials)
        holds = trial.end <= max(1.1 * trial.halfway, SETTLED)
        return holds and trial.end < self.silent and trial.end <= WORSE * least

    @property
    def largest(self) -> float:
        """The largest stable value on the grid."""
        return next(trial.gamma for trial in self.trials if self.stable(trial))

    @property
    def gamma(self) -> float:
        """What to train with."""
        return self.margin * self.correction * self.largest


def search(make: Rule, graph: Topology, sizes: Sequence[int], seed: int = 0, margin: float = MARGIN) -> Search:
    """Try gamma = 1, 0.71, 0.5, .. on a consensus problem of ``graph`` and shortened ``sizes``, until smaller is worse.

    Every round excites the ranks anew, as gradients do. Deterministic. Raises ``UserError`` where nothing is stable.
    """
    few = shortened(sizes, graph.size)
    share, whole = carried(make(1.0).compressor, few), carried(make(1.0).compressor, sizes)
    rounds = min(max(math.ceil(8 / max(share, 1e-9)), ROUNDS.start), ROUNDS.stop - 1)
    trials = tuple(_downhill(make, graph, few, rounds, seed))
    promise = Guarantee.of(make(1.0), graph, sizes)
    correction = min(1.0, whole / share) if share > 0 else 1.0
    found = Search(trials, rounds, tuple(few), correction, promise.gamma if promise else None, margin)
    if not any(found.stable(trial) for trial in trials):
        raise UserError(
            f"no gamma from 1 down to {GRID[-1]:.2g} lets the {graph.size} ranks of {graph.name} agree with "
            f"{make(1.0).compressor!r}: take a finer compressor"
        )
    return found


def shortened(sizes: Sequence[int], ranks: int) -> list[int]:
    """A few segments that stand for ``sizes``: about ``ENTRIES`` over all ranks, in the proportions of all."""
    kinds = sorted(set(sizes), reverse=True)
    some = [kinds[round(i * (len(kinds) - 1) / (KINDS - 1))] for i in range(KINDS)] if len(kinds) > KINDS else kinds
    factor = min(1.0, ENTRIES / ranks / sum(some))
    few = [min(size, max(SHORTEST, round(size * factor))) for size in some]
    # A handful of entries would leave the verdict to chance; more of the same kind do not.
    return few * min(16, math.ceil(FEWEST / (ranks * sum(few))))


def _downhill(make: Rule, graph: Topology, sizes: Sequence[int], rounds: int, seed: int) -> Iterator[Trial]:
    """Trials from the largest gamma on, until two in a row are worse than an earlier one."""
    least, worse = math.inf, 0
    for gamma in GRID:
        yield (trial := _tried(make(gamma), gamma, graph, sizes, rounds, seed))
        worse = worse + 1 if least < math.inf and trial.end > least else 0
        least = min(least, trial.end)
        if worse == 2:
            return


def _tried(rule: Algorithm, gamma: float, graph: Topology, sizes: Sequence[int], rounds: int, seed: int) -> Trial:
    problem = Consensus(rule, graph, sizes, seed, EXCITATION, torch.float32)
    quarters: list[list[float]] = [[], [], [], []]
    for t in problem.rounds(rounds):
        if t % EVERY == 0:
            spread = problem.spread
            if not spread < BURST:
                return Trial(gamma, math.inf, math.inf)
            quarters[4 * (t - 1) // rounds].append(spread)
    return Trial(gamma, fmean(quarters[1]), fmean(quarters[3]))
