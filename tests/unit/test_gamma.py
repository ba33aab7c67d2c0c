"""The search for the consensus step size: what it finds holds, and what it refuses does not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from mpidec import CHOCO, QSGD, Algorithm, Compressor, DeepSqueeze, Message, Sign, TopK, Topology, UserError
from mpidec.consensus.gamma import ENTRIES, GRID, Rule, search, shortened
from mpidec.consensus.problem import Consensus
from mpidec.consensus.theory import Guarantee, carried

RING = Topology.named("ring", 8)


def choco(make: Callable[[], Compressor]) -> Rule:
    return lambda gamma: CHOCO(make(), gamma=gamma)


class Hopeless(Sign):
    """Says the opposite."""

    def add_to(self, out: Tensor, message: Message, alpha: float | Tensor = 1.0) -> None:
        super().add_to(out, message, -3 * alpha)


def spread(rule: Algorithm, sizes: list[int], rounds: int, seed: int = 5) -> float:
    """After a longer run from another start, with gradients; infinite once the ranks have flown apart."""
    problem = Consensus(rule, RING, sizes, seed, 0.02)
    for _ in problem.rounds(rounds):
        if problem.spread > 100:
            return float("inf")
    return problem.spread


def test_the_search_is_deterministic() -> None:
    one, same = (search(choco(lambda: QSGD(3)), RING, [300, 20]) for _ in range(2))
    assert one == same
    other = search(choco(lambda: QSGD(3)), RING, [300, 20], seed=1)
    assert one.trials != other.trials


def test_torch_draws_are_left_alone() -> None:
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    search(choco(lambda: QSGD(3)), RING, [100])
    assert torch.equal(torch.rand(1), expected)


def test_signs_allow_hundreds_of_times_what_is_guaranteed() -> None:
    sizes = [8192, 128, 1280, 10]
    found = search(choco(Sign), RING, sizes)
    assert found.gamma > 300 * found.guaranteed
    assert found.gamma <= 0.5
    promise = Guarantee.of(CHOCO(), RING, sizes)
    assert promise is not None
    assert found.guaranteed == promise.gamma


@pytest.mark.parametrize("make", [lambda: TopK(0.01), lambda: QSGD(2)], ids=["top-k", "qsgd"])
def test_what_is_found_holds_and_four_times_the_largest_does_not(make: Callable[[], Compressor]) -> None:
    sizes = [1000]
    found = search(choco(make), RING, sizes)
    assert found.gamma == pytest.approx(0.5 * found.largest)
    assert found.gamma > 50 * found.guaranteed
    assert found.gamma < 0.2
    short, long = (spread(CHOCO(make(), gamma=found.gamma), sizes, rounds) for rounds in (600, 1000))
    assert long < 0.25
    assert long < 1.1 * short, "settled"
    assert spread(CHOCO(make(), gamma=4 * found.largest), sizes, 1000) > 20 * long


def test_a_warm_up_is_over_when_gamma_must_hold() -> None:
    plain = search(choco(lambda: TopK(0.01)), RING, [500])
    warmed = search(choco(lambda: TopK(0.01, warmup_epochs=5)), RING, [500])
    assert warmed.trials == plain.trials
    assert warmed.gamma == plain.gamma


def test_deepsqueeze_is_searched_too() -> None:
    found = search(lambda gamma: DeepSqueeze(TopK(0.1), gamma=gamma), RING, [200])
    assert found.guaranteed is None
    assert spread(DeepSqueeze(TopK(0.1), gamma=found.gamma), [200], 600) < 0.5
    assert not spread(DeepSqueeze(TopK(0.1), gamma=min(1.0, 8 * found.largest)), [200], 600) < 1


@pytest.mark.parametrize("size", [1, 2, 7, 20, 64])
def test_ranks_with_a_handful_of_entries_find_one_too(size: int) -> None:
    """Signs of few entries do not settle, which is no reason to call every value unstable."""
    found = search(choco(Sign), Topology.named("ring", 4), [size])
    assert 0.1 < found.largest <= 1


def test_trials_run_down_the_grid_and_the_largest_stable_one_counts() -> None:
    found = search(choco(lambda: QSGD(2)), RING, [500])
    assert [trial.gamma for trial in found.trials] == list(GRID[: len(found.trials)])
    assert found.largest == max(trial.gamma for trial in found.trials if found.stable(trial))
    assert not found.stable(found.trials[0])


def test_the_margin_is_the_share_that_is_taken() -> None:
    half, all_ = (search(choco(lambda: QSGD(3)), RING, [300], margin=margin) for margin in (0.5, 1.0))
    assert half.largest == all_.largest
    assert all_.gamma == 2 * half.gamma == pytest.approx(all_.largest * all_.correction)


def test_unstable_everywhere_is_told_in_one_sentence() -> None:
    with pytest.raises(UserError) as refusal:
        search(choco(Hopeless), RING, [300])
    assert str(refusal.value) == (
        "no gamma from 1 down to 0.00035 lets the 8 ranks of ring agree with Sign(): take a finer compressor"
    )


@pytest.mark.parametrize("ranks", [2, 16, 64])
@pytest.mark.parametrize("sizes", [[10**6], [10**6, 30], [8192, 128, 1280, 10], list(range(1, 3000, 7)), [5]])
def test_sizes_are_shortened_to_what_takes_seconds(sizes: list[int], ranks: int) -> None:
    few = shortened(sizes, ranks)
    kinds = set(few)
    assert len(kinds) <= 4
    assert all(any(size >= one for size in sizes) for one in kinds), "no segment grows"
    assert ranks * sum(few) <= 1.01 * ENTRIES + 4 * 64 * ranks
    assert min(few) >= min(64, *sizes)
    if ranks * sum(sizes) <= ENTRIES and len(set(sizes)) <= 4:
        assert kinds == set(sizes), "what is short enough stays as it is"


def test_a_shortened_segment_takes_its_correction() -> None:
    """QSGD loses more of a longer segment."""
    whole, few = [300_000, 20], shortened([300_000, 20], 8)
    found = search(choco(lambda: QSGD(2)), RING, whole)
    assert found.sizes == tuple(few)
    assert found.correction == pytest.approx(carried(QSGD(2), whole) / carried(QSGD(2), few))
    assert found.correction < 0.15
    assert found.gamma == pytest.approx(0.5 * found.correction * found.largest)
    assert search(choco(lambda: QSGD(2)), RING, [400]).correction == 1
    assert search(choco(lambda: TopK(0.01)), RING, [20_000]).correction <= 1
