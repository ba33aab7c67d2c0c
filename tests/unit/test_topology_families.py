"""The families of static graphs: sizes, degrees, connections, and the weights they get."""

from __future__ import annotations

import re

import networkx
import numpy as np
import pytest

from mpidec import Topology, UserError
from mpidec.topology import FAMILIES, families

CHANGING = ("matching_ring", "one_peer_exponential")
SIZES = {"hypercube": (1, 2, 4, 8, 16, 32, 64), "margulis": (1, 4, 9, 16, 25, 36, 49, 64), "social": (32,)}
ACCEPTED = [(name, size) for name in FAMILIES if name not in CHANGING for size in SIZES.get(name, range(1, 65))]


@pytest.mark.parametrize(("family", "size"), ACCEPTED)
def test_every_family_is_symmetric_doubly_stochastic_and_connected(family: str, size: int) -> None:
    graph = Topology.named(family, size)
    W = graph.matrix
    assert (graph.name, graph.size, graph.period) == (family, size, 1)
    assert np.abs(W.sum(0) - 1).max() < 1e-12
    assert np.abs(W.sum(1) - 1).max() < 1e-12
    assert W.min() >= 0
    assert np.array_equal(W, W.T)
    assert networkx.is_connected(networkx.from_numpy_array(W))
    assert graph.spectral_gap > 0
    for rank in range(size):
        assert graph.neighbors(rank) == sorted(graph.neighbors(rank)) == graph.listeners(rank)
        assert rank not in graph.neighbors(rank)
        assert graph.weights(rank)[rank] == pytest.approx(W[rank, rank])


@pytest.mark.parametrize("family", SIZES)
def test_a_size_that_a_family_lacks_is_refused_with_the_nearest_that_it_has(family: str) -> None:
    for size in set(range(1, 65)) - set(SIZES[family]):
        with pytest.raises(UserError, match=f"got {size}, take ") as refusal:
            Topology.named(family, size)
        offered = [int(number) for number in re.findall(r"\d+", str(refusal.value).split("take ")[1])]
        assert offered == [near for near in (_below(family, size), _above(family, size)) if near]
        assert all(Topology.named(family, near).size == near for near in offered)


def _below(family: str, size: int) -> int:
    return max((other for other in SIZES[family] if other < size), default=0)


def _above(family: str, size: int) -> int:
    return min((other for other in SIZES[family] if other > size), default=0)


@pytest.mark.parametrize(
    ("family", "size", "degrees"),
    [
        ("ring", 2, {1}),
        ("ring", 16, {2}),
        ("torus", 16, {4}),
        ("torus", 12, {4}),
        ("torus", 4, {2}),
        ("complete", 9, {8}),
        ("hypercube", 1, {0}),
        ("hypercube", 64, {6}),
        ("exponential", 9, {6}),  # 1, 2, 4 on either side, and 8 is -1
        ("exponential", 16, {7}),  # 1, 2, 4 on either side, 8 opposite
        ("star", 7, {1, 6}),
        ("chain", 7, {1, 2}),
        ("chain", 2, {1}),
        ("grid", 12, {2, 3, 4}),
        ("grid", 13, {1, 2}),
        ("grid", 6, {2, 3}),
        ("random_regular", 5, {4}),
        ("random_regular", 6, {4}),
        ("random_regular", 33, {4}),
        ("margulis", 4, {2}),
        ("margulis", 9, {4}),
        ("social", 32, {2, 3, 4, 5, 6, 7, 8, 10, 12, 14}),
    ],
)
def test_degrees(family: str, size: int, degrees: set[int]) -> None:
    graph = Topology.named(family, size)
    assert {len(graph.neighbors(rank)) for rank in range(size)} == degrees


@pytest.mark.parametrize(
    ("family", "size", "rank", "neighbors"),
    [
        ("star", 5, 0, [1, 2, 3, 4]),
        ("star", 5, 3, [0]),
        ("chain", 5, 0, [1]),
        ("chain", 5, 4, [3]),
        ("grid", 12, 0, [1, 4]),  # 3 x 4
        ("grid", 12, 7, [3, 6, 11]),
        ("torus", 12, 0, [1, 3, 4, 8]),
        ("hypercube", 16, 5, [1, 4, 7, 13]),
        ("exponential", 11, 0, [1, 2, 3, 4, 7, 8, 9, 10]),
    ],
)
def test_neighbors(family: str, size: int, rank: int, neighbors: list[int]) -> None:
    assert Topology.named(family, size).neighbors(rank) == neighbors


def test_margulis_joins_the_points_of_a_torus_as_gabber_and_galil_do() -> None:
    m = 7
    graph = Topology.named("margulis", m * m)
    for x in range(m):
        for y in range(m):
            across = {((x + sign * d) % m, y) for sign in (1, -1) for d in (2 * y, 2 * y + 1)}
            along = {(x, (y + sign * d) % m) for sign in (1, -1) for d in (2 * x, 2 * x + 1)}
            assert graph.neighbors(x * m + y) == sorted(u * m + v for u, v in (across | along) - {(x, y)})


def test_margulis_keeps_its_gap_where_the_torus_loses_it() -> None:
    gaps = [Topology.named("margulis", m * m).spectral_gap for m in (5, 9, 14)]
    assert min(gaps) > 0.2
    assert Topology.named("torus", 14 * 14).spectral_gap < 0.1


def test_the_social_graph_is_of_women_and_events() -> None:
    graph = Topology.named("social", 32)
    assert sum(len(graph.neighbors(rank)) for rank in range(32)) == 2 * 89
    assert all((peer < 18) != (rank < 18) for rank in range(32) for peer in graph.neighbors(rank))
    assert len(graph.neighbors(0)) == 8, "Evelyn Jefferson went to eight events"


@pytest.mark.parametrize("size", [7, 11, 13, 19, 23, 53])
def test_chordal_cycle_of_a_prime(size: int) -> None:
    graph = Topology.named("expander", size)
    for x in range(1, size):
        inverse = pow(x, -1, size)
        expected = {(x + 1) % size, (x - 1) % size, inverse} - {x}
        assert set(graph.neighbors(x)) == expected


@pytest.mark.parametrize("size", [6, 8, 16, 32, 64])
def test_expander_is_sparse_and_mixes_at_least_about_as_fast_as_the_torus(size: int) -> None:
    expander, torus = Topology.named("expander", size), Topology.named("torus", size)
    assert max(len(expander.neighbors(rank)) for rank in range(size)) <= 4
    assert expander.spectral_gap >= 0.85 * torus.spectral_gap
    assert expander.spectral_gap >= Topology.named("random_regular", size).spectral_gap


@pytest.mark.parametrize("family", ["expander", "random_regular"])
def test_random_graphs_are_the_same_at_every_call(family: str) -> None:
    assert Topology.named(family, 32).digest == Topology.named(family, 32).digest


def test_a_random_graph_that_falls_apart_is_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = networkx.random_regular_graph
    apart = networkx.disjoint_union(networkx.complete_graph(5), networkx.complete_graph(5))
    monkeypatch.setattr(
        networkx, "random_regular_graph", lambda degree, size, seed: drawn(degree, size, seed) if seed else apart
    )
    assert Topology.named("random_regular", 10).rows == Topology.from_graph(drawn(4, 10, 1)).rows
    assert Topology.named("expander", 10).doubly_stochastic


def test_names_and_sizes_that_are_refused() -> None:
    with pytest.raises(UserError, match=r"known are chain, complete, expander, .*, torus, perhaps you meant ring"):
        Topology.named("rign", 4)
    with pytest.raises(UserError, match="at least 1 rank: got 0"):
        Topology.named("hypercube", 0)


def test_a_new_family_is_a_function_to_edges_or_to_a_topology(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FAMILIES, "wheel", lambda size: families.star(size) | {(1, size - 1), *families.chain(size)})
    assert Topology.named("Wheel", 6).neighbors(3) == [0, 2, 4]
    monkeypatch.setitem(FAMILIES, "wheel", lambda size: Topology.from_matrix(np.full((size, size), 1 / size)))
    assert Topology.named("wheel", 4).name == "wheel"
    for made, complaint in (
        ({(0, 1), (2, 5), (-1, 2)}, r"the ranks of 4 are 0 \.\. 3: the family 'wheel' has edges at \[-1, 5\]"),
        ({(0, 1)}, "'wheel' is not connected: no path leads from rank 0 to rank 2"),
        (Topology.named("ring", 3), "'wheel' was asked for 4 ranks and made a topology of 3"),
    ):
        monkeypatch.setitem(FAMILIES, "wheel", lambda size, made=made: made)
        with pytest.raises(UserError, match=complaint):
            Topology.named("wheel", 4)
