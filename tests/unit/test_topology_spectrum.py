"""Spectral gap and beta of many ranks: closed forms, few ranks against dense eigenvalues, and no dense matrix."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from mpidec import Topology, UserError
from mpidec.topology import FAMILIES, mixing, spectrum

SIZES = {"hypercube": (32, 64), "margulis": (36, 49), "social": (32,)}


def circles(size: int) -> np.ndarray:
    """The eigenvalues of a ring's adjacency matrix, ``2 cos(2 pi k / n)``, the largest first."""
    return 2 * np.cos(2 * np.pi * np.arange(size // 2 + 1) / size)


def matchings(size: int) -> float:
    """The gap per step of the two matchings of an even ring: moduli ``cos(2 pi k / n) ** 2`` of the product."""
    return float(1 - np.cos(2 * np.pi / size))


RING, TORUS = circles(4096), circles(64)
CLOSED_FORMS = [
    ("ring", 1024, 2 / 3 * (1 - np.cos(2 * np.pi / 1024)), 4 / 3),
    ("ring", 4096, (2 - RING[1]) / 3, 4 / 3),
    ("ring", 4095, (2 - circles(4095)[1]) / 3, (2 - circles(4095)[-1]) / 3),
    ("torus", 4096, (2 - TORUS[1]) / 5, 8 / 5),
    ("chain", 1024, 2 / 3 * (1 - np.cos(np.pi / 1024)), 2 / 3 * (1 + np.cos(np.pi / 1024))),
    ("complete", 300, 1, 1),
    ("star", 4096, 1 / 4096, 1),
    ("hypercube", 1024, 2 / 11, 20 / 11),
    ("hypercube", 2048, 2 / 12, 22 / 12),
    ("matching_ring", 512, matchings(512), 1),
    ("one_peer_exponential", 512, 1, 1),
    ("one_peer_exponential", 1024, 1, 1),
    # |sin(2^k x) / (2^k sin x)| with x = pi j / n is 1 / 2^k for every j where n = 2^k - 1.
    ("one_peer_exponential", 1023, 1 / 2, np.cos(np.pi / 2 / 1023)),
]


@pytest.fixture
def no_dense(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(graph: Topology) -> None:
        raise AssertionError(f"a dense matrix of {graph.size} ranks")

    monkeypatch.setattr(Topology, "matrix", property(refuse))


@pytest.mark.usefixtures("no_dense")
@pytest.mark.parametrize(("family", "size", "gap", "beta"), CLOSED_FORMS)
def test_many_ranks_against_closed_forms_without_a_dense_matrix(
    family: str, size: int, gap: float, beta: float
) -> None:
    graph = Topology.named(family, size)
    assert graph.spectral_gap == pytest.approx(gap, rel=1e-6, abs=0)
    assert graph.beta == pytest.approx(beta, rel=1e-9, abs=0)
    assert graph.doubly_stochastic
    assert graph.symmetric == (family != "one_peer_exponential")


@pytest.mark.usefixtures("no_dense")
def test_a_random_graph_of_many_ranks_keeps_its_gap() -> None:
    gaps = [Topology.named("random_regular", size).spectral_gap for size in (1000, 4096)]
    assert min(gaps) > 0.1  # 1 - 2 sqrt(3) / 5 - 1 / 5 = 0.107 for almost all of them (Friedman 2008)
    assert Topology.named("random_regular", 1000).spectral_gap == gaps[0], "the same at every call"


@pytest.mark.parametrize("size", [30, 60])
def test_a_graph_that_falls_apart_has_no_gap(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spectrum, "DENSE", 8)
    half = Topology.named("ring", size // 2).rows
    two = Topology("two", half + tuple(tuple((peer + size // 2, weight) for peer, weight in row) for row in half))
    assert two.spectral_gap == pytest.approx(0, abs=1e-12)
    alone = Topology.from_matrix(np.eye(size), check=False)
    assert (alone.spectral_gap, alone.beta) == (pytest.approx(0, abs=1e-12), 0)


def figures(graph: Topology) -> tuple[float, float]:
    """The figures of a copy, for a topology remembers its own."""
    copy = Topology(graph.name, graph.rows, graph.phases)
    return copy.spectral_gap, copy.beta


def agree(graph: Topology, monkeypatch: pytest.MonkeyPatch) -> None:
    dense = figures(graph)
    monkeypatch.setattr(spectrum, "DENSE", 8)
    assert figures(graph) == pytest.approx(dense, rel=0, abs=1e-10)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("which", [0, 1])
def test_sparse_against_dense_for_every_family(family: str, which: int, monkeypatch: pytest.MonkeyPatch) -> None:
    size = SIZES.get(family, (31, 60))[which % len(SIZES.get(family, (31, 60)))]
    agree(Topology.named(family, size), monkeypatch)


def permuted(size: int, rng: np.random.Generator, stays: int = 0) -> Topology:
    rows = np.eye(size)
    mixed = rows[rng.permutation(size)] + rows[rng.permutation(size)] + stays * rows
    return Topology.from_matrix(mixed / (2 + stays), check=False)


def skewed(size: int, rng: np.random.Generator) -> Topology:
    """Rows that sum to 1, columns that do not."""
    W = rng.random((size, size))
    return Topology.from_matrix(W / W.sum(1, keepdims=True), check=False)


def signed(size: int, rng: np.random.Generator) -> Topology:
    """Symmetric, neither positive nor summing to 1."""
    W = rng.standard_normal((size, size))
    return Topology.from_matrix((W + W.T) / (4 * np.sqrt(size)), check=False)


MADE: dict[str, Callable[[int, np.random.Generator], Topology]] = {
    "directed": permuted,
    "directed and lazy": lambda size, rng: permuted(size, rng, stays=1),
    "three directed": lambda size, rng: Topology.cycle([permuted(size, rng) for _ in range(3)], check=False),
    "three symmetric": lambda size, _: Topology.cycle(Topology.named(name, size) for name in ("ring", "star", "chain")),
    "one peer": lambda size, _: Topology.from_matrix((np.eye(size) + np.roll(np.eye(size), 1, axis=1)) / 2),
    "skewed": skewed,
    "signed": signed,
    "skewed in turn": lambda size, rng: Topology.cycle([skewed(size, rng), permuted(size, rng)], check=False),
}


@pytest.mark.parametrize("size", [33, 64])
@pytest.mark.parametrize("kind", MADE)
def test_sparse_against_dense_for_weights_of_any_kind(kind: str, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    agree(MADE[kind](size, np.random.default_rng(size)), monkeypatch)


@pytest.mark.parametrize("kind", ["directed", "three symmetric", "skewed"])
def test_sparse_against_dense_just_above_the_threshold(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = MADE[kind](spectrum.DENSE + 1, np.random.default_rng(0))
    sparse = figures(graph)
    monkeypatch.setattr(spectrum, "DENSE", graph.size)
    assert figures(graph) == pytest.approx(sparse, rel=0, abs=1e-10)


@pytest.mark.parametrize("family", ["matching_ring", "one_peer_exponential"])
def test_an_odd_ring_of_matchings_and_peers_of_no_power_of_two(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = Topology.named(family, 301)
    sparse = figures(graph)
    monkeypatch.setattr(spectrum, "DENSE", graph.size)
    assert figures(graph) == pytest.approx(sparse, rel=0, abs=1e-10)


@pytest.mark.usefixtures("no_dense")
def test_a_product_that_is_not_normal_is_dense() -> None:
    assert Topology.named("matching_ring", 300).spectral_gap == pytest.approx(matchings(300)), "as good as symmetric"
    with pytest.raises(AssertionError, match="a dense matrix of 301 ranks"):
        _ = Topology.named("matching_ring", 301).spectral_gap


@pytest.mark.usefixtures("no_dense")
@pytest.mark.parametrize(("miss", "within"), [(0.5e-12, True), (2e-12, False)])
def test_how_far_off_symmetry_and_sums_may_be(miss: float, within: bool) -> None:
    W = np.array([[0.5, 0.25, 0.25], [0.25, 0.5, 0.25], [0.25, 0.25, 0.5]])
    W[0, 1] += miss
    graph = Topology.from_matrix(W, check=False)
    assert (graph.symmetric, graph.doubly_stochastic) == (within, within)


@pytest.mark.usefixtures("no_dense")
def test_what_is_not_doubly_stochastic_and_why() -> None:
    for W, complaint in (
        (
            [[0.75, 0.25], [0.5, 0.5]],
            "row sums of 'matrix' miss 1 by up to 0, column sums by up to 0.25 .* entry is 0.25;",
        ),
        ([[0.75, 0.5], [0.25, 0.5]], "row sums of 'matrix' miss 1 by up to 0.25, column sums by up to 0 "),
        ([[1, 0], [0, 0.5]], "by up to 0.5, column sums by up to 0.5 .* the smallest entry is 0;"),
        ([[1.5, -0.5], [-0.5, 1.5]], "by up to 0, column sums by up to 0 .* the smallest entry is -0.5;"),
    ):
        assert not Topology.from_matrix(W, check=False).doubly_stochastic
        with pytest.raises(UserError, match=complaint):
            Topology.from_matrix(W)
    assert mixing.ROUNDING == 1e-12
    one_way = Topology.from_matrix([[0, 1, 0], [0, 0, 1], [1, 0, 0]])
    assert (one_way.symmetric, one_way.doubly_stochastic) == (False, True)
