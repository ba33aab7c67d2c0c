"""How fast weights mix, from their eigenvalues: dense for few ranks, in memory linear in the edges for many.

The solvers start from a fixed random vector, so that a graph has the same figures at every call.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from mpidec.topology.mixing import Topology

Vector = npt.NDArray[np.float64]
Map = Callable[[Vector], Vector]

DENSE = 256  # ranks up to which dense eigenvalues take less than a tenth of a second
NOTHING = 1e-12  # what is left of a vector of norm 1 where rounding is all that is left
BASIS = 100  # vectors of the solver: a ring of thousands of ranks has eigenvalues too close for few


def second_modulus(graphs: Sequence[Topology]) -> float:
    """The second largest modulus among the eigenvalues of ``W_period .. W_1``, the product of what acts in turn.

    Where a graph is not doubly stochastic its largest eigenvalue need not be that of the vector of ones: then, and
    where the product is not normal (of the families, that of an odd matching_ring), they are dense, in ``size ** 2``.
    """
    size = graphs[0].size
    if size > DENSE and all(graph.doubly_stochastic for graph in graphs):
        found = _largest_on_differences(graphs)
        if found is not None:
            return found
    product = functools.reduce(lambda earlier, later: later @ earlier, (graph.matrix for graph in graphs))
    symmetric = len(graphs) == 1 and graphs[0].symmetric  # products of symmetric matrices seldom are
    eigenvalues = np.linalg.eigvalsh(product) if symmetric else np.linalg.eigvals(product)
    return float(np.sort(np.abs(eigenvalues))[-2])


def distance_from_identity(graph: Topology) -> float:
    """``||I - W||_2``."""
    if graph.size <= DENSE:
        return float(np.linalg.norm(np.eye(graph.size) - graph.matrix, ord=2))
    W = _sparse(graph)
    if graph.symmetric:
        return _symmetric_norm(lambda x: x - W @ x, graph.size)
    return _norm(lambda x: x - W @ x, lambda x: x - W.T @ x, graph.size)


def _sparse(graph: Topology) -> Any:
    """``W`` as a ``scipy.sparse.csr_array``."""
    from scipy.sparse import csr_array  # here, for ranks that only mix need no solver

    entries = list(itertools.chain.from_iterable(graph.rows))
    peers = np.fromiter((peer for peer, _ in entries), dtype=np.int64, count=len(entries))
    weights = np.fromiter((weight for _, weight in entries), dtype=np.float64, count=len(entries))
    ends = np.cumsum([0, *map(len, graph.rows)])
    return csr_array((weights, peers, ends), shape=(graph.size, graph.size))


def _start(size: int) -> Vector:
    start: Vector = np.random.default_rng(0).standard_normal(size)
    start /= np.linalg.norm(start)
    return start


def _largest_on_differences(graphs: Sequence[Topology]) -> float | None:
    """The largest modulus among the eigenvalues of the product on vectors of sum 0; None where it is not normal.

    Ones are an eigenvector of every phase and of its transpose, so the product keeps a sum of 0, and what is left there
    are all eigenvalues but one 1.
    """
    size, start = graphs[0].size, _start(graphs[0].size)
    phases = [_sparse(graph) for graph in graphs]
    if len(phases) > 1 and np.linalg.norm(phases[0] @ (phases[0] @ start) - phases[0] @ start) <= NOTHING:
        # AB and BA have the same eigenvalues: with A = W_period .. W_1 and B = W_1, where W_1 W_1 = W_1, the product
        # may take W_1 once more at its end, which makes that of two matchings symmetric.
        phases.append(phases[0])
    transposed = [W.T.tocsr() for W in reversed(phases)]
    forth, back = (functools.partial(_in_turn, matrices) for matrices in (phases, transposed))
    there, back_again = forth(start), back(start)
    if len(graphs) == 1 and graphs[0].symmetric:
        return _symmetric_norm(forth, size)
    if np.linalg.norm(back(there) - forth(back_again)) <= NOTHING * np.linalg.norm(there):
        return _norm(forth, back, size)  # normal, as of circulant graphs: the moduli are the singular values
    return None


def _in_turn(matrices: Sequence[Any], x: Vector) -> Vector:
    for W in matrices:
        x = W @ x
    x -= x.mean()
    return x


def _norm(forth: Map, back: Map, size: int) -> float:
    """``||A||_2`` of the linear map ``forth`` whose transpose is ``back``.

    From the symmetric ``[[0, A^T], [A, 0]]`` and not ``A^T A``, which would square small norms below the rounding.
    """

    def both(x: Vector) -> Vector:
        return np.concatenate([back(x[size:]), forth(x[:size])])

    return _symmetric_norm(both, 2 * size)


def _symmetric_norm(symmetric: Map, size: int) -> float:
    """``||A||_2`` of a symmetric linear map, the largest modulus of its eigenvalues."""
    from scipy.sparse.linalg import LinearOperator, eigsh

    start = _start(size)
    if np.linalg.norm(symmetric(start)) <= NOTHING:
        return 0.0  # the solver would look for a direction that is not there
    operator = LinearOperator((size, size), matvec=symmetric, dtype=np.float64)
    # Both ends, one by one: of a ring they are about equally far out, and a search for both at once wavers.
    ends = [
        eigsh(operator, k=1, which=end, v0=start, ncv=min(size, BASIS), maxiter=10 * size, return_eigenvectors=False)[0]
        for end in ("LA", "SA")
    ]
    return float(max(np.abs(ends)))
