"""``python -m mpidec.topology ring 16``: neighbours, weights, spectral gap and beta of one topology."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import tyro
from tabulate import tabulate

from mpidec.cli import parse, run, speaks
from mpidec.errors import UserError
from mpidec.topology import Topology, known


def describe(topology: Topology) -> str:
    """Tables of every rank's neighbours and weights, one for each phase, and the figures that decide how fast it mixes.

    Where weights are directed, the tables also tell whom a rank sends to.
    """
    if topology.period == 1:
        parts = [f"{topology.name} over {topology.size} ranks\n{_table(topology, topology.symmetric)}"]
    else:
        parts = [f"{topology.name} over {topology.size} ranks, a graph for each of {topology.period} steps in turn"]
    for phase, graph in enumerate(topology.phases, start=1):
        steps = ", ".join(str(phase + topology.period * again) for again in range(3))
        parts.append(f"steps {steps}, ..: {graph.name}\n{_table(graph, topology.symmetric)}")
    return "\n\n".join([*parts, tabulate(_figures(topology), tablefmt="plain")])


def _table(graph: Topology, symmetric: bool) -> str:
    ranks = range(graph.size)
    columns = {"rank": list(map(str, ranks)), "neighbours": [_listed(graph.neighbors(rank)) for rank in ranks]}
    if not symmetric:
        columns["listeners"] = [_listed(graph.listeners(rank)) for rank in ranks]
    columns["weights (rank:weight)"] = [" ".join(f"{j}:{w:.4f}" for j, w in row) for row in graph.rows]
    return tabulate(columns, headers="keys", disable_numparse=True, colalign=("right",))


def _figures(topology: Topology) -> list[tuple[str, object]]:
    changing = topology.period > 1
    degrees = [("degree in a step" if changing else "degree", _degrees(*(topology.phases or (topology,))))]
    over_a_period = [("period", topology.period), ("degree over a period", _degrees(topology))] if changing else []
    return [
        *degrees,
        *over_a_period,
        ("symmetric", topology.symmetric),
        ("doubly stochastic", topology.doubly_stochastic),
        ("spectral gap per step" if changing else "spectral gap", f"{topology.spectral_gap:.6g}"),
        ("largest beta = ||I - W||_2" if changing else "beta = ||I - W||_2", f"{topology.beta:.6f}"),
    ]


def _degrees(*graphs: Topology) -> str:
    degrees = [len(graph.neighbors(rank)) for graph in graphs for rank in range(graph.size)]
    return f"{min(degrees)} to {max(degrees)}"


def _listed(ranks: list[int]) -> str:
    return " ".join(map(str, ranks)) or "-"


LARGEST = 4096  # ranks; seconds on a sparse graph, but a complete one, of 16 million weights, takes a minute and 4 GB


@dataclass
class Options:
    """Show the neighbours and mixing weights of every rank of a topology, its spectral gap and its beta."""

    name: Annotated[str, tyro.conf.Positional, tyro.conf.arg(help=f"family: {', '.join(known())}")]
    size: Annotated[int, tyro.conf.Positional, tyro.conf.arg(help="number of ranks")]


def main() -> None:
    """Print the description of the topology that the command line names."""
    options = parse(Options, "python -m mpidec.topology")
    if options.size > LARGEST:
        raise UserError(f"the table and the eigenvalues are for up to {LARGEST} ranks: got {options.size}")
    if speaks():
        print(describe(Topology.named(options.name, options.size)))


if __name__ == "__main__":
    run(main)
