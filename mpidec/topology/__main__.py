"""``python -m mpidec.topology ring 16``: neighbours, weights, spectral gap and beta of one graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import tyro
from tabulate import tabulate

from mpidec.cli import parse, run, speaks
from mpidec.errors import UserError
from mpidec.topology import FAMILIES, Topology


def describe(graph: Topology) -> str:
    """A table of every rank's neighbours and weights, and the figures that decide how fast the graph mixes."""
    rows = [
        (rank, " ".join(map(str, graph.neighbors(rank))) or "-", " ".join(f"{j}:{w:.4f}" for j, w in row))
        for rank, row in enumerate(graph.rows)
    ]
    degrees = [len(graph.neighbors(rank)) for rank in range(graph.size)]
    figures = [
        ("degree", f"{min(degrees)} to {max(degrees)}"),
        ("symmetric", graph.symmetric),
        ("doubly stochastic", graph.doubly_stochastic),
        ("spectral gap", f"{graph.spectral_gap:.6f}"),
        ("beta = ||I - W||_2", f"{graph.beta:.6f}"),
    ]
    return "\n".join(
        (
            f"{graph.name} over {graph.size} ranks",
            tabulate(rows, headers=("rank", "neighbours", "weights (rank:weight)")),
            "",
            tabulate(figures, tablefmt="plain"),
        )
    )


LARGEST = 4096  # ranks; dense eigenvalues of more take minutes and gigabytes


@dataclass
class Options:
    """Show the neighbours and mixing weights of every rank of a topology, its spectral gap and its beta."""

    name: Annotated[str, tyro.conf.Positional, tyro.conf.arg(help=f"family: {', '.join(FAMILIES)}")]
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
