"""Graphs and mixing weights."""

from __future__ import annotations

from pathlib import Path

import networkx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpidec import Topology, UserError
from mpidec.topology import FAMILIES
from support.jobs import alone


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("size", range(1, 65))
def test_every_family_is_doubly_stochastic_and_connected_at_every_size(family: str, size: int) -> None:
    graph = Topology.named(family, size)
    W = graph.matrix
    assert graph.size == size
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


@pytest.mark.parametrize(
    ("family", "size", "degree"),
    [("ring", 2, 1), ("ring", 16, 2), ("torus", 16, 4), ("torus", 12, 4), ("torus", 4, 2), ("complete", 9, 8)],
)
def test_degrees(family: str, size: int, degree: int) -> None:
    assert {len(Topology.named(family, size).neighbors(rank)) for rank in range(size)} == {degree}


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
    assert np.array_equal(expander.matrix, Topology.named("expander", size).matrix), "seeded"


def test_known_figures_of_the_ring() -> None:
    ring = Topology.named("ring", 16)
    assert ring.spectral_gap == pytest.approx(1 - (1 + 2 * np.cos(2 * np.pi / 16)) / 3)
    assert ring.beta == pytest.approx(4 / 3)
    assert Topology.named("complete", 5).spectral_gap == pytest.approx(1)


def test_metropolis_hastings_on_a_star() -> None:
    star = Topology.from_graph(networkx.star_graph(3))
    assert star.weights(0) == pytest.approx({0: 0.25, 1: 0.25, 2: 0.25, 3: 0.25})
    assert star.weights(1) == pytest.approx({0: 0.25, 1: 0.75})


@given(st.integers(2, 12), st.integers(0, 2**31))
def test_any_connected_graph_gets_doubly_stochastic_weights(size: int, seed: int) -> None:
    graph = networkx.gnp_random_graph(size, 0.6, seed=seed)
    if networkx.is_connected(graph):
        assert Topology.from_graph(graph).doubly_stochastic
    else:
        with pytest.raises(UserError, match="not connected: no path leads from rank 0"):
            Topology.from_graph(graph)


def test_directed_weights_tell_neighbors_from_listeners() -> None:
    W = [[0.5, 0.5, 0], [0, 0.5, 0.5], [0.5, 0, 0.5]]
    graph = Topology.from_matrix(W)
    assert (graph.neighbors(0), graph.listeners(0)) == ([1], [2])
    assert not graph.symmetric
    assert graph.doubly_stochastic
    assert 0 < graph.spectral_gap < 1
    assert np.array_equal(graph.matrix, W)
    with pytest.raises(ValueError, match="read-only"):
        graph.matrix[0, 0] = 1


@pytest.mark.parametrize(
    ("W", "complaint"),
    [
        ([[0.5, 0.4], [0.5, 0.6]], "doubly stochastic"),
        ([[1.5, -0.5], [-0.5, 1.5]], "doubly stochastic"),
        ([[1, 0], [0, 1]], "not connected"),
        ([[1, 0, 0], [0, 1, 0]], "square"),
        ([], "square"),
        ([[float("nan")]], "finite"),
    ],
)
def test_bad_matrices_are_refused(W: list[list[float]], complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        Topology.from_matrix(W)


def test_a_row_without_own_weight_keeps_its_own_message_at_hand() -> None:
    graph = Topology.from_matrix([[0, 1], [1, 0]])
    assert graph.rows == (((0, 0.0), (1, 1.0)), ((0, 1.0), (1, 0.0)))


def test_bad_graphs_are_refused() -> None:
    with pytest.raises(UserError, match="directed"):
        Topology.from_graph(networkx.DiGraph([(0, 1)]))
    with pytest.raises(UserError, match=r"0 \.\. n-1"):
        Topology.from_graph(networkx.Graph([(1, 2)]))
    with pytest.raises(UserError, match="known are complete, expander, ring, torus, perhaps you meant ring"):
        Topology.named("rign", 4)
    with pytest.raises(UserError, match="at least 1 rank: got 0"):
        Topology.named("ring", 0)


def test_command(tmp_path: Path) -> None:
    shown = alone("-m", "mpidec.topology", "ring", "4", cwd=tmp_path).stdout
    for expected in ("ring over 4 ranks", "1 3", "0:0.3333", "doubly stochastic   True", "0.666667", "1.333333"):
        assert expected in shown
    wrong = alone("-m", "mpidec.topology", "wheel", "4", cwd=tmp_path)
    assert wrong.returncode != 0
    assert wrong.stderr.startswith("error: unknown topology 'wheel': known are")
    assert len(wrong.stderr.splitlines()) == 1
