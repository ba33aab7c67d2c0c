"""How samples are dealt to ranks: all of them, evenly in number, and as unevenly in labels as was asked for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpidec import UserError
from mpidec.train.data.bundled import digits
from mpidec.train.data.partition import Indices, parts
from mpidec.train.names import Partition

KINDS = ["iid", "sorted", "dirichlet:0.01", "dirichlet:0.3", "dirichlet:100"]
NO_ALPHAS = ["", ":", ":0", ":-1", ":inf", ":nan", ":x", ":1:2"]
LABELS = digits().train.labels.numpy()
WHOLE = np.bincount(LABELS) / len(LABELS)


def dealt(kind: str, ranks: int, seed: int = 0, epoch: int = 1, labels: Indices = LABELS) -> list[Indices]:
    return parts(labels, ranks, Partition.parse(kind), seed, epoch)


def histograms(kind: str, ranks: int, seed: int = 0) -> np.ndarray:
    """The share of each class on each rank, shape ``(ranks, 10)``."""
    return np.stack([np.bincount(LABELS[mine], minlength=10) / len(mine) for mine in dealt(kind, ranks, seed)])


def unevenness(kind: str, ranks: int = 16) -> float:
    """The share of a rank's most frequent class, in the mean over the ranks and four seeds."""
    return float(np.mean([histograms(kind, ranks, seed).max(1).mean() for seed in range(4)]))


def assert_deals(mine: list[Indices], samples: int, ranks: int) -> None:
    assert len(mine) == ranks
    assert sorted(np.concatenate(mine).tolist()) == list(range(samples)), "every sample belongs to exactly one rank"
    sizes = {len(one) for one in mine}
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ranks", [1, 2, 7, 10, 16, 100, 1438])
def test_every_sample_belongs_to_one_rank_and_numbers_differ_by_one_at_most(kind: str, ranks: int) -> None:
    assert_deals(dealt(kind, ranks), len(LABELS), ranks)


@given(
    labels=st.lists(st.integers(-3, 6), min_size=1, max_size=60),
    share=st.floats(0, 1),
    kind=st.sampled_from([*KINDS, "dirichlet:1e-3", "dirichlet:1e6"]),
    seed=st.integers(0, 2**63 - 1),
    epoch=st.integers(1, 5),
)
def test_any_labels_are_dealt_whole(labels: list[int], share: float, kind: str, seed: int, epoch: int) -> None:
    ranks = max(1, round(share * len(labels)))
    assert_deals(dealt(kind, ranks, seed, epoch, np.array(labels)), len(labels), ranks)


def test_sorted_gives_each_rank_a_stretch_of_labels() -> None:
    mine = dealt("sorted", 10)
    assert np.array_equal(LABELS[np.concatenate(mine)], np.sort(LABELS))
    assert all(len(set(LABELS[one])) <= 3 for one in mine)
    assert unevenness("sorted", 10) > 0.9


def test_sorted_orders_targets_of_a_regression_too() -> None:
    targets = np.random.default_rng(0).normal(size=30)
    mine = parts(targets, 3, Partition("sorted"), 0, 1)
    assert [targets[one].max() for one in mine[:-1]] <= [targets[one].min() for one in mine[1:]]


def test_labels_are_the_more_uneven_the_smaller_alpha() -> None:
    shares = [unevenness(f"dirichlet:{alpha}") for alpha in (0.01, 0.3, 2, 100)]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] > 0.75, "about one class a rank"
    assert shares[-1] < unevenness("iid") + 0.03


def test_a_large_alpha_approaches_the_whole() -> None:
    def distance(kind: str) -> float:
        """Total variation from the whole, in the mean over the ranks and four seeds."""
        return float(np.mean([np.abs(histograms(kind, 4, seed) - WHOLE).sum(1) / 2 for seed in range(4)]))

    assert distance("dirichlet:100") < 0.1
    assert distance("dirichlet:1") > 0.2


def test_alpha_means_the_same_for_rare_classes() -> None:
    """A class of a tenth of the samples has a tenth of the draws, so a large alpha gives each rank its share."""
    labels = np.repeat([0, 1], [900, 100])
    mine = parts(labels, 5, Partition("dirichlet", 1000.0), 0, 1)
    assert all(10 <= int(labels[one].sum()) <= 30 for one in mine)


@pytest.mark.parametrize("kind", KINDS)
def test_the_deal_is_seeded(kind: str) -> None:
    def lists(seed: int, epoch: int = 1) -> list[list[int]]:
        return [one.tolist() for one in dealt(kind, 8, seed, epoch)]

    assert lists(0) == lists(0)
    assert (lists(0) == lists(1)) is (kind == "sorted")
    assert (lists(0, 1) == lists(0, 2)) is (kind != "iid"), "only iid deals anew in each epoch"


@pytest.mark.parametrize(
    ("text", "partition"),
    [
        ("iid", Partition()),
        ("Sorted", Partition("sorted")),
        ("dirichlet:0.3", Partition("dirichlet", 0.3)),
        ("DIRICHLET:1e-2", Partition("dirichlet", 0.01)),
    ],
)
def test_a_partition_reads_what_it_writes(text: str, partition: Partition) -> None:
    assert Partition.parse(text) == Partition.parse(str(partition)) == partition


@pytest.mark.parametrize("text", ["", "random", "iid:1", "sorted:", *(f"dirichlet{alpha}" for alpha in NO_ALPHAS)])
def test_other_partitions_are_refused(text: str) -> None:
    with pytest.raises(UserError) as refusal:
        Partition.parse(text)
    assert str(refusal.value) == (
        f"--partition is iid, fixed, sorted, or dirichlet:ALPHA with an ALPHA of 0.001 to 1e6: got {text!r}"
    )


def test_a_fixed_deal_is_the_first_of_iid() -> None:
    labels = np.arange(50)
    first, later = (parts(labels, 4, Partition("fixed"), seed=3, epoch=epoch) for epoch in (1, 9))
    assert all((a == b).all() for a, b in zip(first, later, strict=True))
    assert sorted(np.concatenate(first)) == list(range(50))
    moving = [parts(labels, 4, Partition("iid"), seed=3, epoch=epoch) for epoch in (1, 9)]
    assert not all((a == b).all() for a, b in zip(*moving, strict=True))
    assert str(Partition.parse("Fixed")) == "fixed"
