"""Graphs and mixing weights: who listens to whom, and with which weight, in which step."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from mpidec.errors import UserError
from mpidec.topology.spectrum import distance_from_identity, second_modulus
from mpidec.topology.weights import Row, mean, metropolis_hastings, refuse_disconnected

if TYPE_CHECKING:
    import networkx

Matrix = npt.NDArray[np.float64]

ROUNDING = 1e-12  # of sums of weights and of eigenvalues


@dataclass(frozen=True, eq=False)
class Topology:
    """A weighted graph over the ranks ``0 .. size-1``; rank ``i`` averages with the weights ``W[i, j]``.

    ``rows[i]`` holds the pairs ``(j, W[i, j])`` of rank ``i`` with non-zero weight, by ascending ``j``, itself
    included.

    A time-varying topology has ``phases``, the static graphs of one period in turn, and ``at(step)`` is the one that
    a step mixes with. What the whole then tells is what can be relied upon in any step, or over a period:

    - ``rows``, ``weights``, ``matrix``: the mean over a period; so ``neighbors`` and ``listeners`` are all that a
      rank ever has, the connections that a job needs;
    - ``symmetric``, ``doubly_stochastic``: whether every phase is;
    - ``spectral_gap``: per step, from the product of the matrices of a period;
    - ``beta``: the largest of all phases.
    """

    name: str
    rows: tuple[Row, ...]
    phases: tuple[Topology, ...] = ()

    @property
    def size(self) -> int:
        """Number of ranks."""
        return len(self.rows)

    @property
    def period(self) -> int:
        """Number of steps after which the graphs repeat; 1 for a static graph."""
        return len(self._graphs)

    def at(self, step: int) -> Topology:
        """The static graph of step ``step``, counted from 1 (0 is the last of a period); a static one's is itself."""
        return self._graphs[(step - 1) % self.period]

    @property
    def _graphs(self) -> tuple[Topology, ...]:
        return self.phases or (self,)

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
    def digest(self) -> str:
        """Eight hexadecimal digits, equal where the weights are equal to the last bit in every phase; for comparing."""
        return hashlib.sha256(repr([graph.rows for graph in self._graphs]).encode()).hexdigest()[:8]

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
        """Whether ``W`` equals its transpose to 1e-12, in every phase."""
        return all(graph._asymmetry <= ROUNDING for graph in self._graphs)

    @property
    def _asymmetry(self) -> float:
        """The largest ``|W[i, j] - W[j, i]|`` of a static graph."""
        weights = [dict(row) for row in self.rows]
        return max(abs(w - weights[peer].get(rank, 0)) for rank, row in enumerate(self.rows) for peer, w in row)

    @cached_property
    def doubly_stochastic(self) -> bool:
        """Whether ``W`` is non-negative and its rows and columns sum to 1, to 1e-12, in every phase."""
        misses = [graph._misses for graph in self._graphs]
        return all(max(rows, columns) <= ROUNDING and smallest >= 0 for rows, columns, smallest in misses)

    @property
    def _misses(self) -> tuple[float, float, float]:
        """By how much row sums and column sums of a static graph miss 1 at most, and the smallest entry of ``W``."""
        columns: list[list[float]] = [[] for _ in self.rows]
        for row in self.rows:
            for peer, weight in row:
                columns[peer].append(weight)
        by_rows = max(abs(math.fsum(weight for _, weight in row) - 1) for row in self.rows)
        by_columns = max(abs(math.fsum(column) - 1) for column in columns)
        full = all(len(column) == self.size for column in columns)
        smallest = min(min(column, default=0.0) for column in columns)
        return by_rows, by_columns, smallest if full else min(smallest, 0.0)

    @cached_property
    def spectral_gap(self) -> float:
        """``1 - max(|lambda_2|, .., |lambda_n|)``: the share of disagreement that one exact mixing step removes.

        Of a time-varying topology ``1 - |lambda_2| ** (1 / period)``, where lambda are the eigenvalues of the product
        ``W_period .. W_1``: the share per step, in the long run; 1 where a period ends in exact consensus.
        """
        if self.size == 1:
            return 1.0
        second = second_modulus(self._graphs)
        # A root would blow the rounding of a zero up: 1e-16 ** (1 / 6) is 0.002.
        second = 0.0 if second < ROUNDING else min(1.0, second)
        return 1.0 - math.pow(second, 1 / self.period)

    @cached_property
    def beta(self) -> float:
        """``||I - W||_2``, which bounds the consensus step size of CHOCO-SGD (arXiv 1902.00340)."""
        return max(distance_from_identity(graph) for graph in self._graphs)

    @classmethod
    def named(cls, name: str, size: int) -> Topology:
        """The topology of family ``name`` (see ``FAMILIES``) over ``size`` ranks.

        Raises ``UserError`` for an unknown family, for ``size < 1`` and for a size that the family does not have.

        >>> Topology.named("ring", 4).neighbors(0)
        [1, 3]
        """
        from mpidec.topology.families import named  # families build on this module

        return named(name, size)

    @classmethod
    def from_graph(cls, graph: networkx.Graph[Any], check: bool = True, name: str = "graph") -> Topology:
        """Metropolis-Hastings weights on an undirected networkx graph whose nodes are ``0 .. n-1``.

        Raises ``UserError`` for a directed graph, for other node names and, unless ``check`` is off, for a graph
        that falls apart, as a phase of a ``cycle`` may.
        """
        size = graph.number_of_nodes()
        if graph.is_directed():
            raise UserError("a directed graph has no symmetric weights: use Topology.from_matrix with your own")
        if set(graph.nodes) != set(range(size)) or size == 0:
            raise UserError(
                f"the nodes of a graph must be the ranks 0 .. n-1, at least one: got {list(graph.nodes)[:5]}"
            )
        topology = cls(name, metropolis_hastings(size, graph.edges()))
        if check:
            refuse_disconnected(name, topology.rows)
        return topology

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
        if check:
            topology._refuse_unfit()
        return topology

    @classmethod
    def cycle(cls, graphs: Iterable[Topology], check: bool = True, name: str = "cycle") -> Topology:
        """A time-varying topology: step 1 mixes with the first of ``graphs``, and after the last comes the first again.

        The graphs are static and of one size; a single one stays static. Each may fall apart (made with
        ``check=False``), as long as all of them together connect the ranks.

        Raises ``UserError`` for no graphs, graphs of different sizes, graphs that vary themselves and, unless ``check``
        is off, where one is not doubly stochastic or all together fall apart.

        >>> swap = [[0.5, 0.5, 0], [0.5, 0.5, 0], [0, 0, 1]], [[1, 0, 0], [0, 0.5, 0.5], [0, 0.5, 0.5]]
        >>> graph = Topology.cycle(Topology.from_matrix(W, check=False) for W in swap)
        >>> graph.period, graph.at(1).neighbors(1), graph.at(2).neighbors(1), graph.neighbors(1)
        (2, [0], [2], [0, 2])
        """
        phases = tuple(graphs)
        if not phases:
            raise UserError("a cycle needs at least one topology: got none")
        if len(sizes := sorted({phase.size for phase in phases})) > 1:
            raise UserError(f"the topologies of a cycle must be of one size: got {' and '.join(map(str, sizes))} ranks")
        for phase in phases:
            if phase.phases:
                raise UserError(
                    f"the topologies of a cycle must be static: {phase.name!r} has the period {phase.period}, "
                    f"give its graphs at(1) .. at({phase.period}) one by one"
                )
        rows = mean([phase.rows for phase in phases])
        topology = cls(name, rows, phases) if len(phases) > 1 else cls(name, phases[0].rows)
        if check:
            topology._refuse_unfit()
        return topology

    def _refuse_unfit(self) -> None:
        for graph in self._graphs:
            if not graph.doubly_stochastic:
                rows, columns, smallest = graph._misses
                raise UserError(
                    "a mixing matrix must be doubly stochastic (no entry below 0, rows and columns summing to 1): row "
                    f"sums of {graph.name!r} miss 1 by up to {rows:.2g}, column sums by up to {columns:.2g} (1e-12 is "
                    f"allowed: use float64), the smallest entry is {smallest:.6g}; check=False takes it as it is"
                )
        refuse_disconnected(self.name, self.rows)
