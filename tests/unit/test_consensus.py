"""Average consensus does what theory says of it: rates, means, and what stalls."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import pytest
import torch

from mpidec import (
    CHOCO,
    DPSGD,
    QSGD,
    Algorithm,
    Compressor,
    DeepSqueeze,
    Identity,
    Naive,
    RandomK,
    Sign,
    TopK,
    Topology,
)
from mpidec.consensus.problem import Consensus
from mpidec.consensus.theory import Guarantee, carried

RING = Topology.named("ring", 8)
COMPRESSORS: dict[str, tuple[Callable[[], Compressor], float]] = {  # with a gamma for CHOCO
    "sign": (Sign, 0.3),
    "top-k": (lambda: TopK(0.1), 0.2),
    "qsgd": (lambda: QSGD(4), 0.2),
    "random-k": (lambda: RandomK(0.25), 0.1),
}


def promised(rule: Algorithm, graph: Topology, sizes: list[int]) -> Guarantee:
    promise = Guarantee.of(rule, graph, sizes)
    assert promise is not None
    return promise


def drift(problem: Consensus) -> float:
    """How far the mean has moved from where it started, in any entry."""
    return float((problem.x.mean(0) - problem.x0.mean(0)).abs().max())


def test_exact_averaging_shrinks_by_the_second_eigenvalue() -> None:
    second = 1 / 3 + 2 / 3 * math.cos(2 * math.pi / 8)
    problem = Consensus(DPSGD(), RING, [50, 3])
    errors = [problem.error] + [problem.error for _ in problem.rounds(50)]
    assert errors[0] == 1
    ratios = [after / before for before, after in itertools.pairwise(errors)]
    assert ratios[30:] == pytest.approx([second] * 20, rel=1e-8)
    assert all(ratio <= second + 1e-12 for ratio in ratios)
    promise = Guarantee.of(DPSGD(), RING, [53])
    assert promise is not None
    assert promise.rate == pytest.approx(second, rel=1e-12)
    assert promise.gamma is None


def test_a_graph_that_ends_in_exact_consensus_does() -> None:
    problem = Consensus(DPSGD(), Topology.named("one_peer_exponential", 8), [20])
    errors = [problem.error for _ in problem.rounds(3)]
    assert errors[1] > 0.1
    assert errors[2] < 1e-14


@pytest.mark.parametrize("compressor", COMPRESSORS)
def test_choco_converges_to_the_mean_where_naive_gossip_stalls(compressor: str) -> None:
    make, gamma = COMPRESSORS[compressor]
    choco, naive = Consensus(CHOCO(make(), gamma=gamma), RING, [100]), Consensus(Naive(make(), gamma=0.3), RING, [100])
    floor = min(naive.error for t in naive.rounds(1000) if t > 300)
    list(choco.rounds(1000))
    assert max(drift(choco), drift(naive)) < 1e-12
    assert choco.error < 1e-5
    assert floor > 0.03
    assert choco.bytes_per_rank == naive.bytes_per_rank == 1000 * 2 * make().layout(100, torch.float64).nbytes


def test_excitement_is_left_out_unless_asked_for() -> None:
    still, noisy = (Consensus(CHOCO(gamma=0.5), RING, [40], excitation=level) for level in (0.0, 0.1))
    assert torch.equal(still.x, noisy.x), "both start alike"
    for problem in (still, noisy):
        list(problem.rounds(300))
    assert drift(still) < 1e-12
    assert still.spread == pytest.approx(still.error)
    assert drift(noisy) > 0.1
    assert noisy.spread < 0.5 * noisy.error, "ranks stay together while their mean wanders"


def test_starts_are_seeded() -> None:
    one, same, other = (Consensus(CHOCO(), RING, [10], seed).x for seed in (0, 0, 1))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_a_rank_alone_is_in_consensus() -> None:
    problem = Consensus(CHOCO(), Topology.named("ring", 1), [10])
    list(problem.rounds(5))
    assert problem.error == problem.spread == problem.bytes_per_rank == 0


def test_the_guarantee_of_a_ring_of_eight_by_hand() -> None:
    """rho = 0.19526215, beta = 4 / 3, delta = 1 / 2.

    The denominator is 3.12419433 + 0.03812731 + 7.11111111 + 0.69426541 - 0.78104858 = 10.18664957.
    """
    promise = promised(CHOCO(RandomK(0.5)), RING, [100])
    assert promise.gamma == pytest.approx(0.01906365 / 10.18664957, rel=1e-6)
    assert promise.rate == pytest.approx(math.sqrt(1 - 0.01906365 / 82), rel=1e-9)


def test_the_guarantee_of_exact_messages_on_a_complete_graph_by_hand() -> None:
    """rho = beta = delta = 1: 1 / (16 + 1 + 4 + 2 - 8)."""
    promise = promised(CHOCO(Identity()), Topology.named("complete", 5), [100])
    assert promise.gamma == pytest.approx(1 / 15, rel=1e-9)
    assert promise.rate**2 == pytest.approx(81 / 82, rel=1e-9)


def test_nothing_is_promised_where_nothing_is_proved() -> None:
    assert Guarantee.of(DeepSqueeze(), RING, [10]) is None
    assert Guarantee.of(DPSGD(), Topology.named("one_peer_exponential", 8), [10]) is None
    assert Guarantee.of(CHOCO(QSGD(1, contraction=False)), RING, [1000]) is None
    assert Guarantee.of(CHOCO(Identity(torch.float16)), RING, [10]) is None
    assert promised(CHOCO(TopK(0.1)), RING, [100, 5]) == promised(CHOCO(TopK(0.1)), RING, [100]), "the worst counts"


@pytest.mark.parametrize("size", [1, 5, 40])
@pytest.mark.parametrize(
    "make",
    [
        Identity,
        Sign,
        lambda: TopK(0.1),
        lambda: RandomK(0.3),
        lambda: QSGD(2),
        lambda: QSGD(4),
        lambda: QSGD(8, contraction=False),
    ],
)
def test_no_vector_loses_more_than_delta_allows(make: Callable[[], Compressor], size: int) -> None:
    """In the mean over 20,000 draws, for vectors that signs, top-k and quantization find hard among others."""
    vectors = [torch.randn(size), torch.ones(size), torch.eye(size)[0], torch.arange(1.0, size + 1)]
    for u in vectors:
        compressor = make()
        rows = u.double().expand(20_000 if "Sign" not in repr(compressor) else 2, size).contiguous()
        left = rows.clone()
        compressor.add_to(left, compressor.encode(rows), -1.0)
        delta = compressor.delta(size)
        assert delta is not None
        assert 0 < delta <= 1
        assert float(left.square().sum(-1).mean()) <= (1 - delta) * float(u.square().sum()) * 1.02 + 1e-9


@pytest.mark.parametrize("ratio", [0.1, 0.5])
def test_the_guarantee_holds_in_a_run(ratio: float) -> None:
    """Squared distance to the mean, with that of the public copies, stays below the bound in every round."""
    graph = Topology.named("ring", 4)
    promise = promised(CHOCO(RandomK(ratio)), graph, [400])
    rule = CHOCO(RandomK(ratio), gamma=promise.gamma)
    problem, distances = Consensus(rule, graph, [400]), []
    for _ in problem.rounds(600):
        # The copies are ahead of x by half a round, as in the theorem.
        apart = problem.x - problem.x0.mean(0)
        distances.append(float(apart.square().sum() + (problem.x - rule.x_hat).square().sum()))
    bounds = [distances[0] * promise.rate ** (2 * t) for t in range(600)]
    assert all(distance <= bound * (1 + 1e-12) for distance, bound in zip(distances, bounds, strict=True))
    assert bounds[-1] < 0.8 * bounds[0], "the bound says something"


def test_what_one_message_carries() -> None:
    assert carried(Identity(), [50]) == 1
    assert carried(TopK(1.0), [7]) == 1
    assert carried(RandomK(0.1), [300]) == pytest.approx(0.1, abs=0.01)
    assert carried(RandomK(0.25), [40, 800, 3]) == pytest.approx(0.25, abs=0.02)
    assert carried(TopK(0.1), [1000]) > 0.1, "the largest carry more than any"
    assert carried(QSGD(8), [1000]) > 0.98
    assert carried(Sign(), [1000]) < 2 / math.pi, "less than of normal entries, once messages have worn u down"


@pytest.mark.parametrize(("bits", "size"), [(1, 100), (2, 100), (2, 1000), (4, 1000)])
def test_quantization_carries_what_its_scaling_promises(bits: int, size: int) -> None:
    levels = 2**bits - 1
    promised = 1 / (1 + min(size / levels**2, math.sqrt(size) / levels))
    assert promised - 0.01 <= carried(QSGD(bits), [size]) < 2 * promised + 0.01


def test_the_longest_segment_is_the_measure() -> None:
    assert carried(QSGD(2), [10, 1000, 30]) == carried(QSGD(2), [1000])
    assert carried(QSGD(2), [10]) > 2 * carried(QSGD(2), [1000])
