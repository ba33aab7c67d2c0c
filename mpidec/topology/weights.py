"""Mixing weights as plain rows: row ``i`` holds the pairs ``(j, W[i, j])`` by ascending ``j``, ``i`` itself included.

The weights of every undirected graph are Metropolis-Hastings weights, computed here and nowhere else, so that each
mixing matrix is symmetric and doubly stochastic by construction.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from mpidec.errors import UserError

Edges = set[tuple[int, int]]
Row = tuple[tuple[int, float], ...]


def metropolis_hastings(size: int, edges: Iterable[tuple[int, int]]) -> tuple[Row, ...]:
    """``W[i, j] = 1 / (1 + max(degree_i, degree_j))`` on the edges, the rest of each row on the diagonal.

    Loops and repeated edges do not count. (Xiao, Boyd and Lall 2005, IPSN, "A scheme for robust distributed sensor
    fusion based on average consensus".)
    """
    neighbors: list[set[int]] = [set() for _ in range(size)]
    for a, b in edges:
        if a != b:
            neighbors[a].add(int(b))
            neighbors[b].add(int(a))
    rows = []
    for rank in range(size):
        row = {peer: 1 / (1 + max(len(neighbors[rank]), len(neighbors[peer]))) for peer in neighbors[rank]}
        row[rank] = 1 - math.fsum(row.values())
        rows.append(tuple(sorted(row.items())))
    return tuple(rows)


def mean(several: Sequence[tuple[Row, ...]]) -> tuple[Row, ...]:
    """The mean of several matrices; its rows name every rank that any of theirs names."""
    means = []
    for its_rows in zip(*several, strict=True):
        by_peer = [dict(row) for row in its_rows]
        peers = sorted(set().union(*by_peer))
        means.append(tuple((peer, math.fsum(row.get(peer, 0) for row in by_peer) / len(by_peer)) for peer in peers))
    return tuple(means)


def refuse_disconnected(name: str, rows: tuple[Row, ...]) -> None:
    """Raise ``UserError`` where no path leads from rank 0 to some other rank.

    One start is enough in directed graphs too, where columns sum to 1 as rows do: ranks that listen to nobody outside
    then have no listeners outside either.
    """
    reached, frontier = {0}, [0]
    while frontier:
        new = {peer for rank in frontier for peer, _ in rows[rank]} - reached
        reached |= new
        frontier = sorted(new)
    if len(reached) < len(rows):
        lost = min(set(range(len(rows))) - reached)
        raise UserError(f"topology {name!r} is not connected: no path leads from rank 0 to rank {lost}")
