"""Graphs and mixing weights, and the command that shows them."""

from __future__ import annotations

from pathlib import Path

import networkx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpidec import Topology, UserError
from mpidec.topology import FAMILIES, known
from support.jobs import alone


def test_known_figures_of_the_ring() -> None:
    ring = Topology.named("ring", 16)
    assert ring.spectral_gap == pytest.approx(1 - (1 + 2 * np.cos(2 * np.pi / 16)) / 3)
    assert ring.beta == pytest.approx(4 / 3)
    assert Topology.named("complete", 5).spectral_gap == 1


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
        assert Topology.from_graph(graph, check=False).spectral_gap == pytest.approx(0)


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


def test_a_static_topology_is_the_graph_of_every_step() -> None:
    graph = Topology.named("ring", 5)
    assert (graph.period, graph.phases) == (1, ())
    assert all(graph.at(step) is graph for step in (0, 1, 2, 7))


def test_the_digest_tells_weights_apart_and_nothing_else() -> None:
    ring = Topology.named("ring", 6)
    assert len(ring.digest) == 8
    assert int(ring.digest, 16) >= 0
    assert ring.digest == Topology.from_graph(networkx.cycle_graph(6), name="mine").digest
    W = np.array([[0.5, 0.5], [0.5, 0.5]])
    shifted = W + np.array([[1, -1], [-1, 1]]) * 2.0**-52
    families = set(FAMILIES) - {"hypercube", "margulis", "social", "expander"}  # the last may be random_regular's
    named = [Topology.named(family, 12) for family in families]
    graphs = [*named, Topology.from_matrix(W), Topology.from_matrix(shifted)]
    assert len({graph.digest for graph in graphs}) == len(graphs)


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


def test_command(tmp_path: Path) -> None:
    shown = alone("-m", "mpidec.topology", "ring", "4", cwd=tmp_path).stdout
    for expected in ("ring over 4 ranks", "1 3", "0:0.3333", "doubly stochastic   True", "0.666667", "1.333333"):
        assert expected in shown
    assert "listeners" not in shown
    wrong = alone("-m", "mpidec.topology", "wheel", "4", cwd=tmp_path)
    assert wrong.returncode != 0
    assert wrong.stderr.startswith("error: unknown topology 'wheel': known are")
    assert len(wrong.stderr.splitlines()) == 1


def test_the_command_shows_every_phase(tmp_path: Path) -> None:
    shown = alone("-m", "mpidec.topology", "one-peer-exponential", "8", cwd=tmp_path).stdout
    lines = [" ".join(line.split()) for line in shown.splitlines()]
    assert lines[0] == "one_peer_exponential over 8 ranks, a graph for each of 3 steps in turn"
    for expected in (
        "steps 2, 5, 8, ..: rank + 2",
        "rank neighbours listeners weights (rank:weight)",
        "0 1 7 0:0.5000 1:0.5000",
        "0 4 4 0:0.5000 4:0.5000",
        "period 3",
        "degree in a step 1 to 1",
        "degree over a period 3 to 3",
        "symmetric False",
        "spectral gap per step 1",
        "largest beta = ||I - W||_2 1.000000",
    ):
        assert expected in lines
    assert lines.count("0 2 6 0:0.5000 2:0.5000") == 1


def test_the_help_lists_every_family(tmp_path: Path) -> None:
    shown = alone("-m", "mpidec.topology", "--help", cwd=tmp_path, COLUMNS="200").stdout
    assert ", ".join(known()) in " ".join(shown.replace("│", " ").split())
