"""The combinations of a sweep, each a configuration of ``mpidec.train`` with a number of ranks."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from mpidec import compress, optim
from mpidec.errors import UserError
from mpidec.names import canonical
from mpidec.rows import Rows
from mpidec.simulate.options import Sweep
from mpidec.topology import Topology
from mpidec.topology.weights import metropolis_hastings
from mpidec.train import build
from mpidec.train.config import Config
from mpidec.train.gamma import with_gamma


@dataclass(frozen=True)
class Setting:
    """One line of a plot: ``config`` names algorithm, compressor, topology and what they take."""

    config: Config
    ranks: int

    @functools.cached_property
    def graph(self) -> Topology:
        """Over the ranks. See ``graph_of``."""
        return graph_of(self.config, self.ranks)

    def with_gamma(self, sizes: Sequence[int]) -> Setting:
        """The same with a number for a gamma of ``auto``. Raises ``UserError`` where none is stable."""
        return dataclasses.replace(self, config=with_gamma(self.config, self.graph, sizes))

    def described(self) -> dict[str, Any]:
        """What sets this line apart, for a record."""
        names = ("algorithm", "compressor", "ratio", "bits", "gamma")
        own = {name: value for name in names if (value := getattr(self.config, name)) is not None}
        return {**own, "topology": "all" if self.config.central else self.config.topology, "ranks": self.ranks}


LARGEST = 65_536  # ranks
ENTRIES = 2**30  # of all ranks' vectors together, of which a rule holds several: 8 GB each in float64


def refuse_too_many(ranks: int, entries: int) -> None:
    """Raise ``UserError`` for a number of ranks that is none, or for vectors of ``entries`` that fit no memory."""
    if not 1 <= ranks <= LARGEST:
        raise UserError(f"--ranks must be at least 1 and at most {LARGEST:,}: got {ranks}")
    if ranks * entries > ENTRIES:
        raise UserError(
            f"{ranks} ranks with {entries:,} entries each are more than the {ENTRIES:,} that are held here: take fewer"
        )


def graph_of(config: Config, ranks: int) -> Topology:
    """The graph of a simulation, on which the rule of ``config`` can start.

    For a central algorithm one without edges: its sums need none, and of the complete graph of thousands of ranks there
    would be millions. Raises ``UserError`` for a family without this size, and for weights that the rule cannot follow.
    """
    refuse_too_many(ranks, 1)
    if config.central:
        return Topology("complete", metropolis_hastings(ranks, ()))
    graph = _named(config.topology, ranks)
    rule = build.rule(dataclasses.replace(config, gamma=1.0) if config.gamma == "auto" else config)
    rule.start(torch.zeros(ranks, 1), Rows(graph))
    return graph


@functools.lru_cache(maxsize=16)
def _named(topology: str, ranks: int) -> Topology:
    """Built once, which takes seconds for an expander of thousands of ranks."""
    return Topology.named(topology, ranks)


def settings(sweep: Sweep, fits: Callable[[str], bool] = lambda algorithm: True, **others: Any) -> list[Setting]:
    """Every combination of what ``sweep`` lists, without those that differ in what they do not use.

    An algorithm that takes none of several compressors comes with its own. ``others`` are further options of each
    configuration. Raises ``UserError`` for names and values that do not exist, and for an algorithm that ``fits`` not.
    """
    made: dict[Setting, None] = {}
    algorithms = [canonical("algorithm", name, optim.known()) for name in sweep.algorithm]
    compressors = [canonical("compressor", name, compress.known()) for name in sweep.compressor]
    for name, values in (("ranks", sweep.ranks), ("topology", sweep.topology), ("algorithm", algorithms)):
        if not values:
            raise UserError(f"--{name} needs one value at least")
    for ranks, topology, algorithm in itertools.product(sweep.ranks, sweep.topology, algorithms):
        entry = optim.entry(algorithm)
        if not fits(algorithm):
            known = ", ".join(name for name in optim.known() if fits(name))
            raise UserError(f"--algorithm {algorithm} does not fit this simulation: take {known}")
        fitting = [name for name in compressors if name in entry.compressors or name not in compress.COMPRESSORS]
        alone = len(algorithms) == 1 and entry.compressors
        for compressor in (*(compressors if alone else fitting),) or (None,):
            for options in _options(sweep, entry, compressor):
                own: dict[str, Any] = {} if entry.central else {"topology": topology}
                config = Config(algorithm=algorithm, compressor=compressor, **own, **options, **others)
                made[Setting(config, ranks)] = None
    used = {name for setting in made for name, value in setting.described().items() if value is not None}
    for name in ("ratio", "bits", "gamma"):
        if getattr(sweep, name) and name not in used:
            raise UserError(f"--{name} has no effect: none of {', '.join(labels(list(made)))} takes it, leave it out")
    for name in compressors:
        if all(setting.config.compressor != name for setting in made):
            raise UserError(f"--compressor {name} fits none of the algorithms {', '.join(algorithms)}: leave it out")
    return list(made)


def _options(sweep: Sweep, entry: optim.Entry, compressor: str | None) -> list[dict[str, Any]]:
    """The combinations of the options that this algorithm and this compressor have."""
    takes = entry.options | compress.OPTIONS.get(compressor or next(iter(entry.compressors), ""), {})
    remembers = entry.needs == "contraction"
    gammas = tuple(gamma for gamma in sweep.gamma if gamma != "auto" or remembers) or (("auto",) if remembers else ())
    listed = {"gamma": gammas, "ratio": sweep.ratio, "bits": sweep.bits}
    used = {name: values for name, values in listed.items() if name in takes and values}
    return [dict(zip(used, values, strict=True)) for values in itertools.product(*used.values())]


def labels(several: Sequence[Setting]) -> list[str]:
    """A name for each of ``several``, of what they differ in, and at least the algorithm."""
    rows = [setting.described() for setting in several]
    names = dict.fromkeys(name for row in rows for name in row)
    telling = [name for name in names if len({row.get(name) for row in rows}) > 1 or name == "algorithm"]
    return [", ".join(_part(name, row[name]) for name in telling if name in row) for row in rows]


def _part(name: str, value: Any) -> str:
    forms = {"ranks": "{} ranks", "ratio": "ratio {:g}", "bits": "{} bits"}
    if name == "gamma":
        return f"gamma {value:.3g}" if isinstance(value, float) else f"gamma {value}"
    return forms.get(name, "{}").format(value)
