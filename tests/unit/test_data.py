"""Which samples a rank sees, and that models and optimizers are built as asked."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from mpidec import Topology, UserError
from mpidec.simulate.training import Training
from mpidec.train import build, data, models
from mpidec.train.config import Config
from mpidec.train.data.dataset import Dataset, Split
from mpidec.train.data.lazy import LazySplit
from mpidec.train.data.shards import Shards
from mpidec.train.data.source import Source
from mpidec.train.names import Partition
from mpidec.transport.solo import Solo
from support import data as own
from support.problems import alone


def labels(samples: int) -> Tensor:
    """Of ``samples`` samples of five classes in no order."""
    return torch.arange(samples) * 7 % 5


@pytest.mark.parametrize("partition", ["iid", "sorted", "dirichlet:0.3"])
@pytest.mark.parametrize(("samples", "ranks", "batch_size"), [(100, 1, 8), (100, 3, 8), (1437, 16, 8), (7, 7, 1)])
def test_every_sample_is_seen_in_equally_many_full_batches(
    samples: int, ranks: int, batch_size: int, partition: str
) -> None:
    shards = Shards(labels(samples), ranks, batch_size, 0, Partition.parse(partition))
    for epoch in (1, 2):
        batches = [list(shards.batches(epoch, rank)) for rank in range(ranks)]
        assert {len(own) for own in batches} == {shards.steps}
        assert {len(batch) for own in batches for batch in own} == {batch_size}
        seen = [set(torch.cat(own).tolist()) for own in batches]
        assert set().union(*seen) == set(range(samples))
        assert sum(map(len, seen)) == samples, "no sample belongs to two ranks"


def test_the_order_is_seeded_and_new_in_each_epoch() -> None:
    def order(seed: int, epoch: int) -> list[int]:
        return torch.cat(list(Shards(labels(64), 2, 8, seed).batches(epoch, 0))).tolist()

    assert order(0, 1) == order(0, 1)
    assert order(0, 1) != order(0, 2)
    assert order(0, 1) != order(1, 1)


@pytest.mark.parametrize("partition", ["iid", "sorted", "dirichlet:0.3"])
def test_a_rank_keeps_its_samples_in_a_new_order_unless_they_are_dealt_anew(partition: str) -> None:
    shards = Shards(labels(64), 2, 8, 0, Partition.parse(partition))
    first, second = (torch.cat(list(shards.batches(epoch, 1))).tolist() for epoch in (1, 2))
    assert first != second
    assert (set(first) == set(second)) is (partition != "iid")
    assert sorted(first) == sorted(torch.cat(list(shards.batches(1, 1))).tolist())


@pytest.mark.parametrize("partition", ["iid", "sorted", "dirichlet:0.3"])
def test_all_ranks_together_see_what_each_of_them_does(partition: str) -> None:
    shards = Shards(labels(50), 3, 4, 1, Partition.parse(partition))
    together = torch.stack(list(shards.steps_of(2)))
    assert together.shape == (shards.steps, 3, 4)
    for rank in range(3):
        assert torch.equal(together[:, rank], torch.stack(list(shards.batches(2, rank))))


def test_ranks_shuffle_apart_under_a_fixed_deal() -> None:
    """With one shuffle for all, ranks would walk through their labels in step."""
    shards = Shards(torch.arange(40), 2, 4, 0, Partition("sorted"))
    first, second = (torch.cat(list(shards.batches(1, rank))) for rank in (0, 1))
    assert not torch.equal(first + 20, second)


def test_too_few_samples_are_refused() -> None:
    with pytest.raises(UserError, match="9 ranks cannot share 8 training samples"):
        Shards(labels(8), 9, 1, 0)
    with pytest.raises(UserError, match="a batch of 5 is larger than a rank's shard of 4 samples"):
        Shards(labels(8), 2, 5, 0)


TEXT = Dataset(*[Split(torch.zeros(9, 4, dtype=torch.int16), torch.zeros(9, 4, dtype=torch.uint8))] * 2, 256)


def lazy(source: own.Numbers) -> Dataset:
    split = LazySplit(source, torch.tensor(source.targets) if hasattr(source, "targets") else None, "mine", 3)
    return Dataset(split, split, 3)


def test_text_is_dealt_by_its_place() -> None:
    shards = build.shards(Config(partition="sorted", batch_size=1), TEXT, 3)
    assert [part.tolist() for part in shards.parts(1)] == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
    assert len(build.shards(Config(batch_size=1), TEXT, 3).parts(1)[0]) == 3
    with pytest.raises(UserError, match=r"--partition dirichlet:0.5 divides classes among the ranks, but"):
        build.shards(Config(partition="dirichlet:0.5", batch_size=1), TEXT, 3)


def test_samples_without_known_labels_are_dealt_anew_alone() -> None:
    unknown = lazy(own.Unlabelled(12))
    assert build.shards(Config(batch_size=1), unknown, 3).samples == 12
    for partition in ("sorted", "dirichlet:0.5"):
        with pytest.raises(UserError, match=f"--partition {partition} goes by labels, which this data set does"):
            build.shards(Config(partition=partition, batch_size=1), unknown, 3)
    known = build.shards(Config(partition="sorted", batch_size=1), lazy(own.Numbers(12)), 3)
    assert [{k % 3 for k in part.tolist()} for part in known.parts(1)] == [{0}, {1}, {2}]


def test_labels_of_each_rank_are_counted() -> None:
    dataset = lazy(own.Numbers(13))
    shards = build.shards(Config(partition="sorted", batch_size=1), dataset, 3)
    assert build.label_counts(dataset, shards) == [[5, 0, 0], [0, 4, 0], [0, 0, 4]]
    dealt = build.label_counts(dataset, build.shards(Config(batch_size=1), dataset, 2))
    assert [sum(rank) for rank in dealt] == [7, 6]
    assert [sum(label) for label in zip(*dealt, strict=True)] == [5, 4, 4]
    missing = lazy(own.Unlabelled(12))
    for without in (TEXT, missing):
        assert build.label_counts(without, build.shards(Config(batch_size=1), without, 3)) is None


def test_the_simulator_refuses_what_it_cannot_hold_or_batch() -> None:
    graph = Topology.named("ring", 3)
    with pytest.raises(UserError, match="the simulator needs all samples in memory"):
        Training(Config(batch_size=1, algorithm="dpsgd"), lazy(own.Numbers(12)), graph)
    with pytest.raises(UserError, match="the simulator cannot train lstm"):
        Training(Config(batch_size=1, algorithm="dpsgd", model="lstm"), TEXT, graph)


def test_digits() -> None:
    digits = data.load(Source("digits"), Solo())
    assert (len(digits.train), len(digits.test), digits.classes, digits.sample) == (1438, 359, 10, (8, 8))
    assert digits.train.inputs.min() == 0
    assert digits.train.inputs.max() == 1
    assert set(digits.train.labels.tolist()) == set(digits.test.labels.tolist()) == set(range(10))


def test_the_optimizer_is_the_one_that_was_asked_for() -> None:
    config = Config(lr=0.3, momentum=0.8, nesterov=False, weight_decay=0.01, gamma=0.2, compressor="top-k", ratio=0.5)
    optimizer = build.optimizer(config, models.build("logistic", (8, 8), 10), alone(), steps_per_epoch=7)
    (group,) = optimizer.param_groups
    assert (group["lr"], group["momentum"], group["nesterov"], group["weight_decay"]) == (0.3, 0.8, False, 0.01)
    assert optimizer.algorithm.gamma == 0.2
    assert repr(optimizer.algorithm.compressor) == "TopK(0.5)"
    assert optimizer.steps_per_epoch == 7
    plain = build.optimizer(Config(momentum=0.0), models.build("logistic", (8, 8), 10), alone(), 7)
    assert not plain.param_groups[0]["nesterov"], "there is none without momentum"
