"""Graphs and mixing weights: who listens to whom, and with which weight.

The weights of every undirected graph are Metropolis-Hastings weights, computed here and nowhere else, so that each
mixing matrix is symmetric and doubly stochastic by construction.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from mpidec.errors import UserError

if TYPE_CHECKING:
    import networkx

Matrix = npt.NDArray[np.float64]
Edges = set[tuple[int, int]]


@dataclass(frozen=True, eq=False)
class Topology:
    """A weighted graph over the ranks ``0 .. size-1``; rank ``i`` averages with the weights ``W[i, j]``.

    ``rows[i]`` holds the pairs ``(j, W[i, j])`` of rank ``i`` with non-zero weight, by ascending ``j``, itself
    included.
    """

    name: str
    rows: tuple[tuple[tuple[int, float], ...], ...]
    period: int = 1

    @property
    def size(self) -> int:
        """Number of ranks."""
        return len(self.rows)

    def at(self, step: int) -> Topology:
        """The graph of step ``step`` (from 1); the same one at every step while ``period`` is 1."""
        return self

    def weights(self, rank: int) -> dict[int, float]:
        """``{j: W[rank, j]}`` over the ranks that ``rank`` mixes, itself included, by ascending rank."""
        return dict(self.rows[rank])

    def neighbors(self, rank: int) -> list[int]:
        """The ranks whose messages ``rank`` receives, by ascending rank, without itself."""
        return [peer for peer, _ in self.rows[rank] if peer != rank]

    def listeners(self, rank: int) -> list[int]:
        """The ranks that receive the messages of ``rank``; its neighbors, where ``W`` is symmetric."""
        return self._listeners[rank]

    @cached_property
    def _listeners(self) -> list[list[int]]:
        listeners: list[list[int]] = [[] for _ in self.rows]
        for rank in range(self.size):
            for peer in self.neighbors(rank):
                listeners[peer].append(rank)
        return listeners

    @cached_property
    def matrix(self) -> Matrix:
        """``W``, shape ``(size, size)``, float64, read-only."""
        W = np.zeros((self.size, self.size))
        for rank, row in enumerate(self.rows):
            for peer, weight in row:
                W[rank, peer] = weight
        W.flags.writeable = False
        return W

    @cached_property
    def symmetric(self) -> bool:
        """Whether ``W`` equals its transpose to 1e-12."""
        return bool(np.allclose(self.matrix, self.matrix.T, rtol=0, atol=1e-12))

    @cached_property
    def doubly_stochastic(self) -> bool:
        """Whether ``W`` is non-negative and its rows and columns sum to 1, to 1e-12."""
        sums = np.concatenate([self.matrix.sum(axis=0), self.matrix.sum(axis=1)])
        return bool(self.matrix.min() >= 0 and np.abs(sums - 1).max() <= 1e-12)

    @cached_property
    def spectral_gap(self) -> float:
        """``1 - max(|lambda_2|, .., |lambda_n|)``: the share of disagreement that one exact mixing step removes."""
        if self.size == 1:
            return 1.0
        eigenvalues = np.linalg.eigvalsh(self.matrix) if self.symmetric else np.linalg.eigvals(self.matrix)
        moduli = np.sort(np.abs(eigenvalues))
        return float(min(1.0, max(0.0, 1.0 - moduli[-2])))

    @cached_property
    def beta(self) -> float:
        """``||I - W||_2``, which bounds the consensus step size of CHOCO-SGD (arXiv 1902.00340)."""
        return float(np.linalg.norm(np.eye(self.size) - self.matrix, ord=2))

    @classmethod
    def named(cls, name: str, size: int) -> Topology:
        """The graph of family ``name`` (see ``FAMILIES``) over ``size`` ranks.

        Raises ``UserError`` for an unknown family and for ``size < 1``.

        >>> Topology.named("ring", 4).neighbors(0)
        [1, 3]
        """
        from mpidec.topology.families import named  # families build on this module

        return named(name, size)

    @classmethod
    def from_graph(cls, graph: networkx.Graph[Any], name: str = "graph") -> Topology:
        """Metropolis-Hastings weights on an undirected networkx graph whose nodes are ``0 .. n-1``.

        Raises ``UserError`` for a directed or disconnected graph and for other node names.
        """
        size = graph.number_of_nodes()
        if graph.is_directed():
            raise UserError("a directed graph has no symmetric weights: use Topology.from_matrix with your own")
        if set(graph.nodes) != set(range(size)) or size == 0:
            raise UserError(
                f"the nodes of a graph must be the ranks 0 .. n-1, at least one: got {list(graph.nodes)[:5]}"
            )
        return metropolis_hastings(name, size, {(int(a), int(b)) for a, b in graph.edges})

    @classmethod
    def from_matrix(cls, W: npt.ArrayLike, check: bool = True, name: str = "matrix") -> Topology:
        """A topology with the weights ``W``, shape ``(n, n)``; row ``i`` is what rank ``i`` mixes.

        Raises ``UserError`` where ``W`` is not a finite square matrix or, unless ``check`` is off, where it is not
        doubly stochastic (non-negative, every row and column summing to 1) or the graph falls apart.
        """
        matrix = np.asarray(W, dtype=np.float64)
        if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or matrix.size == 0:
            raise UserError(f"a mixing matrix is square, n x n with n >= 1: got the shape {matrix.shape}")
        if not np.isfinite(matrix).all():
            raise UserError("a mixing matrix must be finite: it holds NaN or infinity")
        # A rank always keeps its own message at hand, so its row names itself even with weight 0.
        rows = tuple(
            tuple((peer, float(row[peer])) for peer in range(len(row)) if row[peer] != 0 or peer == rank)
            for rank, row in enumerate(matrix)
        )
        topology = cls(name, rows)
        if check and not topology.doubly_stochastic:
            raise UserError(
                "a mixing matrix must be doubly stochastic (no entry below 0, rows and columns summing to 1): "
                f"row sums miss 1 by up to {np.abs(matrix.sum(1) - 1).max():.2g}, column sums by up to "
                f"{np.abs(matrix.sum(0) - 1).max():.2g} (1e-12 is allowed: use float64), the smallest entry is "
                f"{matrix.min():.6g}; check=False takes it as it is"
            )
        if check:
            _refuse_disconnected(name, [topology.neighbors(rank) for rank in range(topology.size)])
        return topology


def metropolis_hastings(name: str, size: int, edges: Edges) -> Topology:
    """``W[i, j] = 1 / (1 + max(degree_i, degree_j))`` on the edges, the rest of each row on the diagonal."""
    neighbors: list[set[int]] = [set() for _ in range(size)]
    for a, b in edges:
        if a != b:
            neighbors[a].add(b)
            neighbors[b].add(a)
    _refuse_disconnected(name, neighbors)
    rows = []
    for rank in range(size):
        row = {peer: 1 / (1 + max(len(neighbors[rank]), len(neighbors[peer]))) for peer in neighbors[rank]}
        row[rank] = 1 - math.fsum(row.values())
        rows.append(tuple(sorted(row.items())))
    return Topology(name, tuple(rows))


def _refuse_disconnected(name: str, neighbors: Iterable[Iterable[int]]) -> None:
    listed = [list(peers) for peers in neighbors]
    reached, frontier = {0}, [0]
    while frontier:
        new = [peer for rank in frontier for peer in listed[rank] if peer not in reached]
        reached.update(new)
        frontier = new
    if len(reached) < len(listed):
        lost = min(set(range(len(listed))) - reached)
        raise UserError(f"topology {name!r} is not connected: no path leads from rank 0 to rank {lost}")
