"""Time of a step for up to thousands of ranks, projected from latency and bandwidth: see ``mpidec.simulate.costs``."""

from __future__ import annotations

import dataclasses
import itertools
import math
import sys
from dataclasses import dataclass
from typing import Any

from tabulate import tabulate

from mpidec import compress, plots
from mpidec.compress.base import Compressor
from mpidec.errors import UserError
from mpidec.folder import Folder
from mpidec.simulate import options, ping
from mpidec.simulate.costs import GRAPHS, Cost, Model, degree, shorter
from mpidec.topology import Topology
from mpidec.train.config import Config

LARGEST = 4096  # ranks: the expander of 4096 takes seconds, one of 16,384 minutes
SLOW = 512  # ranks from which on the graphs are announced
MARGIN = 0.05  # of a step: what saves less is said not to pay
# By family: the number of its ``plots.line``, and its marker.
STYLES = {
    "all-reduce": (6, "o"),
    "ring": (0, "s"),
    "torus": (1, "^"),
    "expander": (2, "D"),
    "one-peer": (3, "v"),
    "hierarchical": (4, "P"),
}


@dataclass(frozen=True)
class Method:
    """A line of the plot: ``family`` is a key of ``STYLES``, ``compressor`` the name of one, or ``None``."""

    family: str
    compressor: str | None = None

    def __str__(self) -> str:
        return ", ".join(filter(None, (self.family, self.compressor)))


ALL_REDUCE = Method("all-reduce")
Costs = dict[Method, dict[int, Cost]]  # by number of ranks, ascending


def simulate(chosen: options.Scale) -> None:
    """Cost every method over every number of ranks, then show a table, what does not pay, and a plot."""
    _refuse_out_of_range(chosen)
    name, compressor = _compressor(chosen)
    plots.refuse_without_matplotlib()
    if chosen.measure:
        measured = ping.measured(chosen)
        if measured is None:
            return
        chosen = measured
    folder = Folder.make(chosen.out, "scale")
    costs = _costs(Model.of(chosen, compressor), name, sorted(set(chosen.ranks)))
    for method, over in costs.items():
        for ranks, cost in over.items():
            folder.append("results.jsonl", _record(method, ranks, cost, chosen))
    print(
        "\n".join([_table(costs, chosen), "", *_findings(costs, chosen), "", f"results in {folder.path}"]), flush=True
    )
    _plot(costs, chosen, folder)


def _refuse_out_of_range(chosen: options.Scale) -> None:
    """Raise ``UserError`` for a value that an option cannot have; between the ends nothing of the model overflows."""
    if not chosen.ranks:
        raise UserError("--ranks needs one value at least")
    ends: dict[str, tuple[float, float, str]] = {
        "ranks": (1, LARGEST, ""),
        "parameters": (1, 10**15, ""),
        "compute": (0, 10**6, " seconds"),
        "encode": (0, 10**6, " seconds"),
        "latency": (0, 10**6, " seconds"),
        "bandwidth": (1, 10**18, " bytes a second"),
        "local_bandwidth": (1, 10**18, " bytes a second"),
        "ranks_per_host": (1, LARGEST, ""),
    }
    for name, (lowest, highest, unit) in ends.items():
        given = getattr(chosen, name)
        for value in given if isinstance(given, tuple) else (given,):
            if not lowest <= value <= highest:
                raise UserError(f"--{name.replace('_', '-')} must be {lowest} to {highest:g}{unit}: got {value}")


def _compressor(chosen: options.Scale) -> tuple[str, Compressor]:
    """Its name and itself. Raises ``UserError`` for an unknown one, and for an option that another one has."""
    config = Config(compressor=chosen.compressor, ratio=chosen.ratio, bits=chosen.bits)
    assert config.compressor is not None, "choco takes every compressor"
    return config.compressor, compress.compressor(config.compressor, **config.compressor_arguments)


def _costs(model: Model, compressor: str, sizes: list[int]) -> Costs:
    """Of every method over all ``sizes``, with the graphs as training would build them."""
    degrees: dict[tuple[str, int], int] = {}
    for ranks in sizes:
        if ranks >= SLOW:
            print(f"building the graphs of {ranks} ranks", file=sys.stderr, flush=True)
        degrees |= {(family, ranks): degree(Topology.named(name, ranks)) for family, name in GRAPHS.items()}
    costs = {ALL_REDUCE: {ranks: model.all_reduce(ranks) for ranks in sizes}}
    for family, uses in itertools.product(GRAPHS, (None, compressor)):
        one = {ranks: model.gossip(degrees[family, ranks], compressed=uses is not None) for ranks in sizes}
        costs[Method(family, uses)] = one
    costs[Method("hierarchical", compressor)] = {ranks: model.hierarchical(ranks) for ranks in sizes}
    return costs


def _record(method: Method, ranks: int, cost: Cost, chosen: options.Scale) -> dict[str, Any]:
    """One line of ``results.jsonl``: bytes of the busiest rank, times in seconds, bandwidths in bytes a second."""
    given = {name: value for name, value in dataclasses.asdict(chosen).items() if name not in ("ranks", "out")}
    step = cost.step(chosen.bandwidth)
    return {
        "method": str(method),
        "ranks": ranks,
        "degree": cost.degree,
        "bytes_per_rank": cost.nbytes + cost.local_bytes,
        "bytes_inside_host": cost.local_bytes,
        "seconds_communication": cost.communication(chosen.bandwidth),
        "seconds_step": step,
        "steps_per_second": 1 / step if step else None,
        **given,
        "compressor": method.compressor,
    }


def _table(costs: Costs, chosen: options.Scale) -> str:
    rows = []
    for ranks in costs[ALL_REDUCE]:
        steps = {str(method): over[ranks].step(chosen.bandwidth) for method, over in costs.items()}
        fastest = [name for name, step in steps.items() if step == min(steps.values())]
        alike = f" and {len(fastest) - 1} more" if len(fastest) > 1 else ""
        rows.append([str(ranks), *(f"{step * 1e3:.4g}" for step in steps.values()), fastest[0] + alike])
    headers = ["n", *(str(method).replace(", ", "\n") for method in costs), "fastest"]
    aligned = [*["right"] * (len(headers) - 1), "left"]
    made = tabulate(rows, headers=headers, disable_numparse=True, colalign=aligned)
    return f"Milliseconds a step over n ranks, {chosen.compute * 1e3:g} of them computing:\n\n{made}"


def _findings(costs: Costs, chosen: options.Scale) -> list[str]:
    """What does not pay, at which bandwidths the compressed ring does, and what the model leaves out."""
    compressed = [method for method in costs if method.compressor]
    pairs = [(method, ALL_REDUCE) for method in costs if method != ALL_REDUCE]
    pairs += [(method, plain) for method in compressed if (plain := Method(method.family)) in costs]
    ranks = list(costs[ALL_REDUCE])[-1]
    ring = next(method for method in compressed if method.family == "ring")
    one, other = costs[ring][ranks], costs[ALL_REDUCE][ranks]
    ever, clearly = (_bandwidths(shorter(one, other, margin)) for margin in (0.0, MARGIN))
    spared = other.step(chosen.bandwidth) - one.step(chosen.bandwidth) + chosen.encode
    return [
        f"What does not pay, since the step without it takes less than {MARGIN:.0%} longer:",
        *filter(None, (_not_paid(costs, *pair, chosen.bandwidth) for pair in pairs)),
        "",
        f"At n = {ranks} a step of all-reduce takes longer than one of the ring with {ring.compressor} {ever}, "
        f"and over {MARGIN:.0%} longer {clearly}.",
        f"At {_speed(chosen.bandwidth)} the ring "
        + (f"wins while encoding and decoding take less than {spared * 1e3:.4g} ms a step" if spared > 0 else "loses")
        + f"; counted here: {chosen.encode * 1e3:g} ms (--encode).",
        "The model leaves out contention, links that ranks share, stragglers, overlap with computing, and the further "
        "steps that gossip and compression may need for the same accuracy.",
    ]


def _not_paid(costs: Costs, method: Method, instead: Method, bandwidth: float) -> str:
    """For which n ``method`` saves too little over ``instead``; empty where it always pays."""
    one, other = costs[method], costs[instead]
    lost = [n for n in one if other[n].step(bandwidth) <= (1 + MARGIN) * one[n].step(bandwidth)]
    where = "every n" if len(lost) == len(one) else f"n = {', '.join(map(str, lost))}"
    return f"  {method} in place of {instead}: {where}" if lost else ""


def _bandwidths(between: tuple[float, float] | None) -> str:
    if between is None:
        return "at no bandwidth"
    lowest, highest = between
    ends = [f"above {_speed(lowest)}"] * (lowest > 0) + [f"below {_speed(highest)}"] * (highest < math.inf)
    return " and ".join(ends) or "at every bandwidth"


def _speed(bandwidth: float) -> str:
    return f"{bandwidth / 1e9:.3g} GB/s ({bandwidth / 1e9 * 8:.3g} Gbit/s)"


def _plot(costs: Costs, chosen: options.Scale, folder: Folder) -> None:
    from matplotlib.ticker import NullFormatter, StrMethodFormatter

    drawn = []
    with plots.figure(folder, "scale.png", panels=2) as (times, shares):
        for method, over in costs.items():
            number, marker = STYLES[method.family]
            place = list(STYLES).index(method.family)
            style = plots.line(number + len(plots.COLORS) * (method.compressor is not None))
            # Many lines are equal: what is drawn first is the widest, and stays in sight behind the others.
            style |= {"marker": marker, "markersize": 8 - place, "linewidth": 2.4 - 0.3 * place}
            style |= {"markerfacecolor": "none", "markeredgewidth": 1.0}
            steps = [cost.step(chosen.bandwidth) for cost in over.values()]
            percent = [
                100 * c.communication(chosen.bandwidth) / (s or 1) for c, s in zip(over.values(), steps, strict=True)
            ]
            times.plot(list(over), [1e3 * step for step in steps], label=str(method), **style)
            shares.plot(list(over), percent, **style)
            drawn += [(times, 1e3 * step) for step in steps] + [(shares, share) for share in percent]
        for axes, what in ((times, "milliseconds a step"), (shares, "communication, % of the step")):
            axes.set(xlabel="ranks", ylabel=what)
            axes.set_xscale("log", base=2)
            values = [value for its, value in drawn if its is axes and value > 0]
            if values:  # one rank alone has nothing to say
                axes.set_yscale("log")
            for axis in (axes.xaxis, axes.yaxis):
                axis.set_major_formatter(StrMethodFormatter("{x:g}"))
            within_a_decade = values and max(values) < 10 * min(values)
            axes.yaxis.set_minor_formatter(StrMethodFormatter("{x:g}") if within_a_decade else NullFormatter())
            axes.tick_params(which="both", labelsize=8)
        plots.legend(times, len(costs))
