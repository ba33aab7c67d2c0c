"""The families of graphs: each states its edges, nothing else. A new one is a function and an entry in the table."""

from __future__ import annotations

import math
from collections.abc import Callable

from mpidec.errors import UserError
from mpidec.names import canonical
from mpidec.topology.mixing import Edges, Topology, metropolis_hastings


def complete(size: int) -> Edges:
    """Everyone with everyone."""
    return {(a, b) for a in range(size) for b in range(a)}


def ring(size: int) -> Edges:
    """Each rank with the one before and the one after; two ranks share one edge."""
    return {(rank, (rank + 1) % size) for rank in range(size)}


def torus(size: int) -> Edges:
    """The most nearly square grid of ``size`` ranks, wrapped around both ways; a ring where ``size`` is prime."""
    rows = next(side for side in range(math.isqrt(size), 0, -1) if size % side == 0)
    columns = size // rows
    right = {(r * columns + c, r * columns + (c + 1) % columns) for r in range(rows) for c in range(columns)}
    down = {(r * columns + c, (r + 1) % rows * columns + c) for r in range(rows) for c in range(columns)}
    return right | down


def expander(size: int) -> Edges:
    """A sparse graph with a large spectral gap: degree at most 4, diameter of order log n.

    For prime ``size >= 7`` the chordal cycle: ``x`` to ``x + 1``, ``x - 1`` and its inverse modulo ``size``
    (Hoory, Linial and Wigderson 2006, Bull. AMS 43:439). For other sizes from 6 the best of 20 seeded random
    4-regular graphs by spectral gap. Below 6 the complete graph, which no graph of degree 4 can better.
    """
    if size < 6:
        return complete(size)
    if all(size % divisor for divisor in range(2, math.isqrt(size) + 1)):
        return ring(size) | {(x, pow(x, -1, size)) for x in range(1, size)}
    import networkx

    best: tuple[float, Edges] = (-1.0, set())
    for seed in range(20):
        graph = networkx.random_regular_graph(4, size, seed=seed)
        if networkx.is_connected(graph):
            gap = Topology.from_graph(graph).spectral_gap
            if gap > best[0]:
                best = gap, {(int(a), int(b)) for a, b in graph.edges}
    return best[1]


FAMILIES: dict[str, Callable[[int], Edges]] = {
    "complete": complete,
    "expander": expander,
    "ring": ring,
    "torus": torus,
}


def named(name: str, size: int) -> Topology:
    """See ``Topology.named``."""
    name = canonical("topology", name, FAMILIES)
    if size < 1:
        raise UserError(f"a topology has at least 1 rank: got {size}")
    return metropolis_hastings(name, size, FAMILIES[name](size))
