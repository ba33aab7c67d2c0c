"""The families of graphs by name. A new one is a function from a size to its edges and an entry in the table.

A family that cannot exist for a size raises ``UserError`` with the nearest sizes that it has.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator

from mpidec import plugins
from mpidec.errors import UserError
from mpidec.names import canonical, merged
from mpidec.topology.changing import matching_ring, one_peer_exponential
from mpidec.topology.mixing import Topology
from mpidec.topology.weights import Edges, metropolis_hastings, refuse_disconnected


def complete(size: int) -> Edges:
    """Everyone with everyone."""
    return {(a, b) for a in range(size) for b in range(a)}


def star(size: int) -> Edges:
    """Rank 0 with everyone, and nobody else with anybody."""
    return {(0, rank) for rank in range(1, size)}


def chain(size: int) -> Edges:
    """Each rank with the one before and the one after; a ring that is open between the last and the first."""
    return {(rank, rank + 1) for rank in range(size - 1)}


def ring(size: int) -> Edges:
    """Each rank with the one before and the one after; two ranks share one edge."""
    return {(rank, (rank + 1) % size) for rank in range(size)}


def _sides(size: int) -> tuple[int, int]:
    """Rows and columns of the most nearly square grid."""
    rows = next(side for side in range(math.isqrt(size), 0, -1) if size % side == 0)
    return rows, size // rows


def grid(size: int) -> Edges:
    """The most nearly square grid of ``size`` ranks, row by row, not wrapped; a chain where ``size`` is prime."""
    rows, columns = _sides(size)
    right = {(r * columns + c, r * columns + c + 1) for r in range(rows) for c in range(columns - 1)}
    down = {(r * columns + c, (r + 1) * columns + c) for r in range(rows - 1) for c in range(columns)}
    return right | down


def torus(size: int) -> Edges:
    """The most nearly square grid of ``size`` ranks, wrapped around both ways; a ring where ``size`` is prime."""
    rows, columns = _sides(size)
    right = {(r * columns + c, r * columns + (c + 1) % columns) for r in range(rows) for c in range(columns)}
    down = {(r * columns + c, (r + 1) % rows * columns + c) for r in range(rows) for c in range(columns)}
    return right | down


def hypercube(size: int) -> Edges:
    """The ranks whose binary numbers differ in one digit; powers of two only."""
    if size & (size - 1):
        below = 1 << size.bit_length() - 1
        raise UserError(f"a hypercube has 2^k ranks: got {size}, take {below} or {2 * below}")
    return {(rank, rank ^ 1 << digit) for rank in range(size) for digit in range(size.bit_length() - 1)}


def exponential(size: int) -> Edges:
    """Each rank with those ``1, 2, 4, ..`` before and after it around the ring: degree and diameter of order log n.

    The undirected form of the static exponential graph (Ying, Yuan, Chen, Hu, Pan and Yin 2021, arXiv 2110.13363).
    """
    return {(rank, (rank + 2**power) % size) for rank in range(size) for power in range((size - 1).bit_length())}


def margulis(size: int) -> Edges:
    """The Margulis-Gabber-Galil expander on the points of an ``m x m`` torus, row by row; squares only.

    Degree at most 8, for parallel edges count once; a spectral gap bounded away from 0 for all sizes (Gabber and
    Galil 1981, J. Comput. Syst. Sci. 22:407).
    """
    side = math.isqrt(size)
    if side**2 != size:
        raise UserError(f"a margulis graph has m x m ranks: got {size}, take {side**2} or {(side + 1) ** 2}")
    import networkx

    edges = networkx.margulis_gabber_galil_graph(side).edges()
    return {(x * side + y, u * side + v) for (x, y), (u, v) in edges}


def social(size: int) -> Edges:
    """Who went where in Natchez, Mississippi: 18 women and 14 events, 32 ranks and no other number.

    From A. Davis, B. B. Gardner and M. R. Gardner 1941, "Deep South", University of Chicago Press: a real network,
    uneven and sparse. Ranks 0 to 17 are the women, 18 to 31 the events.
    """
    if size != 32:
        raise UserError(f"the social graph has 32 ranks, 18 women and 14 events: got {size}, take 32")
    import networkx

    graph = networkx.davis_southern_women_graph()
    rank = {node: number for number, node in enumerate(graph)}
    return {(rank[a], rank[b]) for a, b in graph.edges()}


def _random_4_regular(size: int) -> Iterator[Edges]:
    """A random graph where everyone has 4 neighbours for each seed 0, 1, .., without those that fall apart."""
    import networkx

    for seed in itertools.count():
        graph = networkx.random_regular_graph(4, size, seed=seed)
        if networkx.is_connected(graph):
            yield set(graph.edges())


def random_regular(size: int) -> Edges:
    """A random 4-regular graph, the same at every call; below 6 ranks the complete graph."""
    return next(_random_4_regular(size)) if size >= 6 else complete(size)


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
    candidates = itertools.islice(_random_4_regular(size), 20)
    return max(candidates, key=lambda edges: Topology("candidate", metropolis_hastings(size, edges)).spectral_gap)


FAMILIES: dict[str, Callable[[int], Edges | Topology]] = {
    "chain": chain,
    "complete": complete,
    "expander": expander,
    "exponential": exponential,
    "grid": grid,
    "hypercube": hypercube,
    "margulis": margulis,
    "matching_ring": matching_ring,
    "one_peer_exponential": one_peer_exponential,
    "random_regular": random_regular,
    "ring": ring,
    "social": social,
    "star": star,
    "torus": torus,
}


def known() -> list[str]:
    """The names of all families, those of other packages last."""
    return merged(FAMILIES, plugins.names("topologies"))


def named(name: str, size: int) -> Topology:
    """See ``Topology.named``."""
    name = canonical("topology", name, known())
    if size < 1:
        raise UserError(f"a topology has at least 1 rank: got {size}")
    family = FAMILIES[name] if name in FAMILIES else plugins.load("topologies", name)
    made = family(size)
    if not isinstance(made, (set, Topology)):
        raise UserError(f"the family {name!r} must make a set of edges or a Topology: got {type(made).__name__}")
    return built(name, size, made)


def built(name: str, size: int, made: Edges | Topology) -> Topology:
    """What the family ``name`` made for ``size`` ranks as a topology: edges with weights, a ready one as it is.

    Raises ``UserError`` where it does not fit ``size`` or falls apart.
    """
    if isinstance(made, Topology):
        if made.size != size:
            raise UserError(f"the family {name!r} was asked for {size} ranks and made a topology of {made.size}")
        return dataclasses.replace(made, name=name)
    if outside := sorted({rank for edge in made for rank in edge} - set(range(size))):
        raise UserError(f"the ranks of {size} are 0 .. {size - 1}: the family {name!r} has edges at {outside[:5]}")
    rows = metropolis_hastings(size, made)
    refuse_disconnected(name, rows)
    return Topology(name, rows)
