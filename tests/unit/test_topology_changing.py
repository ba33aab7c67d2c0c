"""Topologies that change from step to step: the two families, and cycles of one's own graphs."""

from __future__ import annotations

import functools
import itertools
import math

import networkx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpidec import Topology, UserError
from mpidec.topology.mixing import Matrix

CHANGING = ("matching_ring", "one_peer_exponential")


def phases(topology: Topology) -> list[Topology]:
    return [topology.at(step) for step in range(1, topology.period + 1)]


def product(topology: Topology) -> Matrix:
    """What a whole period does to the values of all ranks; the first step acts first."""
    done = np.eye(topology.size)
    for graph in phases(topology):
        done = graph.matrix @ done
    return done


@pytest.mark.parametrize("family", CHANGING)
@pytest.mark.parametrize("size", range(1, 65))
def test_every_phase_is_doubly_stochastic_and_a_period_brings_all_ranks_together(family: str, size: int) -> None:
    topology = Topology.named(family, size)
    assert (topology.name, topology.size) == (family, size)
    for graph in phases(topology):
        W = graph.matrix
        assert graph.period == 1
        assert np.abs(W.sum(0) - 1).max() == np.abs(W.sum(1) - 1).max() == 0
        assert set(np.unique(W)) <= {0, 0.5, 1}
        assert max(len(graph.neighbors(rank)) for rank in range(size)) <= 1
    assert topology.doubly_stochastic
    assert networkx.is_strongly_connected(networkx.from_numpy_array(topology.matrix, create_using=networkx.DiGraph))
    assert np.linalg.norm(product(topology) - 1 / size, ord=2) < 1 - 1e-6
    assert 0 < topology.spectral_gap <= 1


@pytest.mark.parametrize("size", range(1, 65))
def test_one_peer_exponential_listens_to_one_rank_at_twice_the_distance_each_step(size: int) -> None:
    topology = Topology.named("one_peer_exponential", size)
    period = max(1, math.ceil(math.log2(size)))
    assert topology.period == period
    for step in range(1, 2 * period + 1):
        expected = np.eye(size) / 2
        for rank in range(size):
            expected[rank, (rank + 2 ** ((step - 1) % period)) % size if size > 1 else 0] += 0.5
        assert np.array_equal(topology.at(step).matrix, expected)
    exact = np.array_equal(product(topology), np.full((size, size), 1 / size))
    assert exact == (size & (size - 1) == 0) == (topology.spectral_gap == 1)


def test_the_two_directions_of_a_directed_phase_are_told_apart() -> None:
    topology = Topology.named("one_peer_exponential", 5)
    graph = topology.at(2)
    assert ([graph.neighbors(rank) for rank in (0, 4)], graph.weights(4)) == ([[2], [1]], {1: 0.5, 4: 0.5})
    assert [graph.listeners(rank) for rank in (0, 4)] == [[3], [2]]
    assert not graph.symmetric
    assert (topology.neighbors(0), topology.listeners(0)) == ([1, 2, 4], [1, 3, 4])


@pytest.mark.parametrize("size", range(2, 65))
def test_the_phases_of_matching_ring_are_matchings_that_make_up_the_ring(size: int) -> None:
    topology = Topology.named("matching_ring", size)
    assert topology.period == (1 if size == 2 else 2 + size % 2)
    edges = [{frozenset((rank, *graph.neighbors(rank))) for rank in range(size)} for graph in phases(topology)]
    pairs = [{pair for pair in some if len(pair) == 2} for some in edges]
    assert all(sum(map(len, some)) == len(frozenset().union(*some)) for some in pairs), "no rank in two edges"
    assert all(graph.symmetric for graph in phases(topology))
    assert topology.symmetric
    ring = Topology.named("ring", size)
    assert [topology.neighbors(rank) for rank in range(size)] == [ring.neighbors(rank) for rank in range(size)]
    assert sum(map(len, pairs)) == sum(len(ring.neighbors(rank)) for rank in range(size)) // 2, "each edge once"
    assert frozenset((0, 1)) in pairs[0]


@pytest.mark.parametrize("family", CHANGING)
def test_a_single_rank_has_one_static_graph(family: str) -> None:
    alone = Topology.named(family, 1)
    assert (alone.period, alone.rows, alone.phases) == (1, (((0, 1.0),),), ())
    assert alone.at(3) is alone


def test_steps_count_from_one_and_cycle() -> None:
    graphs = [Topology.named(family, 6) for family in ("ring", "star", "chain")]
    topology = Topology.cycle(graphs, name="mine")
    assert (topology.name, topology.size, topology.period) == ("mine", 6, 3)
    assert [topology.at(step) for step in range(1, 8)] == [*graphs, *graphs, graphs[0]]


def test_the_gap_is_the_share_of_disagreement_that_a_step_removes_in_the_long_run() -> None:
    for topology in (Topology.named("matching_ring", 11), Topology.named("one_peer_exponential", 11)):
        values = np.random.default_rng(0).normal(size=topology.size)
        spread = []
        for step in range(1, 60 * topology.period + 1):
            values = topology.at(step).matrix @ values
            if step % topology.period == 0:
                spread.append(np.linalg.norm(values - values.mean()))
        late = (spread[19] / spread[9]) ** (1 / (10 * topology.period))
        assert 1 - late == pytest.approx(topology.spectral_gap, rel=0.02)


def test_two_matchings_of_four_ranks_agree_exactly() -> None:
    assert Topology.named("matching_ring", 4).spectral_gap == 1
    assert Topology.named("matching_ring", 4).beta == pytest.approx(1)


@st.composite
def directed(draw: st.DrawFn, size: int) -> Topology:
    """Half of one permutation and half of another: doubly stochastic, directed, and often not connected."""
    rows = np.eye(size)
    one, other = draw(st.permutations(range(size))), draw(st.permutations(range(size)))
    return Topology.from_matrix((rows[list(one)] + rows[list(other)]) / 2, check=False)


@given(st.integers(2, 5).flatmap(lambda size: st.lists(directed(size), min_size=2, max_size=4)))
def test_what_a_cycle_tells_of_its_graphs(graphs: list[Topology]) -> None:
    topology = Topology.cycle(graphs, check=False)
    matrices = [graph.matrix for graph in graphs]
    assert topology.matrix == pytest.approx(np.mean(matrices, axis=0))
    for rank in range(topology.size):
        assert topology.neighbors(rank) == sorted({peer for graph in graphs for peer in graph.neighbors(rank)})
        assert topology.listeners(rank) == sorted({peer for graph in graphs for peer in graph.listeners(rank)})
    assert topology.beta == max(graph.beta for graph in graphs)
    assert topology.symmetric == all(graph.symmetric for graph in graphs)
    assert topology.doubly_stochastic
    done = functools.reduce(lambda earlier, later: later @ earlier, matrices)
    second = np.sort(np.abs(np.linalg.eigvals(done - 1 / topology.size)))[-1]
    assert (1 - topology.spectral_gap) ** topology.period == pytest.approx(second, abs=1e-3)
    if networkx.is_strongly_connected(networkx.DiGraph(np.ceil(topology.matrix))):
        assert Topology.cycle(graphs).digest == topology.digest
    else:
        with pytest.raises(UserError, match="'cycle' is not connected"):
            Topology.cycle(graphs)


def test_symmetric_means_every_phase_even_where_the_mean_is() -> None:
    topology = Topology.named("one_peer_exponential", 3)
    assert np.array_equal(topology.matrix, topology.matrix.T)
    assert not topology.symmetric


def test_the_digest_covers_every_phase_in_order() -> None:
    one, two, three = (Topology.named(family, 6) for family in ("ring", "star", "chain"))
    digests = {Topology.cycle(order).digest for order in itertools.permutations((one, two, three))}
    assert len(digests) == 6
    assert Topology.cycle([one, two]).digest == Topology.cycle([one, two], name="another").digest
    assert Topology.cycle([one]).digest == one.digest != Topology.cycle([one, one]).digest


def test_a_cycle_of_one_graph_is_that_graph() -> None:
    cycle = Topology.cycle([Topology.named("ring", 6)])
    assert (cycle.period, cycle.rows, cycle.name) == (1, Topology.named("ring", 6).rows, "cycle")


def test_bad_cycles_are_refused() -> None:
    ring, changing = Topology.named("ring", 4), Topology.named("matching_ring", 4)
    apart = Topology.from_graph(networkx.Graph([(0, 1), (2, 3)]), check=False)
    skewed = Topology.from_matrix([[0.5, 0.5], [0.25, 0.75]], check=False, name="skewed")
    makes_up = Topology.from_matrix([[0.5, 0.5], [0.75, 0.25]], check=False)
    for graphs, complaint in (
        ([], "at least one topology: got none"),
        ([ring, Topology.named("ring", 5)], "of one size: got 4 and 5 ranks"),
        ([ring, changing], r"'matching_ring' has the period 2, give its graphs at\(1\) \.\. at\(2\)"),
        ([apart, apart], "'cycle' is not connected: no path leads from rank 0 to rank 2"),
        ([skewed, makes_up], "doubly stochastic .*: row sums of 'skewed' miss 1 by up to 0, column sums by up to 0.25"),
    ):
        with pytest.raises(UserError, match=complaint):
            Topology.cycle(graphs)
    assert Topology.cycle([apart, ring]).doubly_stochastic
    assert Topology.cycle(phases(changing)).digest == changing.digest
    assert not Topology.cycle([skewed, makes_up], check=False).doubly_stochastic, "though their mean is"
