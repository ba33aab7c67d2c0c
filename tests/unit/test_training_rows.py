"""A network trained on rows does what its ranks would do one by one, buffers included."""

from __future__ import annotations

import copy
import hashlib
import math

import pytest
import torch
from torch import Tensor, nn

from mpidec import Topology
from mpidec.errors import NonFiniteError
from mpidec.simulate.training import Training
from mpidec.train import build
from mpidec.train.config import Config
from mpidec.train.data.dataset import Dataset, Split
from mpidec.train.local import local_step
from mpidec.train.names import MODELS

RANKS = 3


def normed(sample: tuple[int, ...], classes: int) -> nn.Module:
    """Running means, a counter of batches, and a dropout that drops nothing."""
    return nn.Sequential(
        nn.Linear(math.prod(sample), 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Dropout(0.0), nn.Linear(6, classes)
    )


def dropping(sample: tuple[int, ...], classes: int) -> nn.Module:
    return nn.Sequential(nn.Dropout(0.5), nn.Linear(math.prod(sample), classes))


def frozen(sample: tuple[int, ...], classes: int) -> nn.Module:
    """A first layer that does not learn."""
    model = nn.Sequential(nn.Linear(math.prod(sample), 6), nn.Tanh(), nn.Linear(6, classes))
    return model.requires_grad_(False).append(nn.Linear(classes, classes))


@pytest.fixture(autouse=True)
def models(monkeypatch: pytest.MonkeyPatch) -> None:
    for model in (normed, dropping, frozen):
        monkeypatch.setitem(MODELS, model.__name__, f"{__name__}:{model.__name__}")


def samples(number: int, seed: int) -> Split:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 3, (number,), generator=generator)
    return Split(torch.randn(number, 5, generator=generator) + labels.unsqueeze(-1), labels)


DATA = Dataset(samples(47, 0), samples(30, 1), 3)


def training_of(model: str, graph: str = "chain", ranks: int = RANKS, dataset: Dataset = DATA, **options) -> Training:
    given = {"algorithm": "dpsgd", "dtype": "float64", "batch_size": 4, "seed": 2, "partition": "sorted", **options}
    return Training(Config(model=model, **given), dataset, Topology.named(graph, ranks))


def one_by_one(training: Training, epochs: int) -> list[nn.Module]:
    """The models of all ranks, each trained by its own optimizer, under adapt-then-combine gossip."""
    config, shards = training.config, training.shards
    first = build.model(config, DATA)
    models = [copy.deepcopy(first) for _ in range(RANKS)]
    local = [local_step(config, model) for model in models]
    W = torch.from_numpy(training.graph.matrix.copy())
    for epoch in range(1, epochs + 1):
        for batches in zip(*(shards.batches(epoch, rank) for rank in range(RANKS)), strict=True):
            for model, optimizer, batch in zip(models, local, batches, strict=True):
                model.train()
                optimizer.zero_grad()
                outputs = model(DATA.train.inputs[batch].double())
                nn.functional.cross_entropy(outputs, DATA.train.labels[batch]).backward()
                optimizer.step()
            for values in zip(*(optimizer.param_groups[0]["params"] for optimizer in local), strict=True):
                mixed = torch.einsum("ij,j...->i...", W, torch.stack([value.detach() for value in values]))
                for value, row in zip(values, mixed, strict=True):
                    value.data.copy_(row)
    return models


def trainable(model: nn.Module) -> Tensor:
    return nn.utils.parameters_to_vector(p for p in model.parameters() if p.requires_grad).detach()


def share_right(model: nn.Module) -> float:
    model.eval()
    with torch.no_grad():
        right = model(DATA.test.inputs.double()).argmax(-1) == DATA.test.labels
    return float(right.sum()) / len(DATA.test)


@pytest.mark.parametrize("model", ["normed", "frozen"])
def test_rows_train_as_ranks_do_one_by_one(model: str) -> None:
    training = training_of(model)
    for epoch in (1, 2):
        losses = list(training.epoch(epoch))
        assert {loss.shape for loss in losses} == {(RANKS,)}
        training.evaluate()  # which leaves everything as it is
    models = one_by_one(training, 2)
    assert training.steps == 2 * training.shards.steps == 8
    for rank, one in enumerate(models):
        torch.testing.assert_close(training.x[rank], trainable(one), rtol=0, atol=1e-12)
        for name, buffer in one.named_buffers():
            torch.testing.assert_close(training.buffers[name][rank], buffer, rtol=0, atol=1e-12)
    if model == "normed":
        assert training.buffers["1.num_batches_tracked"].tolist() == [8, 8, 8]
        assert not torch.equal(training.buffers["1.running_mean"][0], training.buffers["1.running_mean"][1])


def test_evaluation_by_hand() -> None:
    training = training_of("normed")
    list(training.epoch(1))
    models = one_by_one(training, 1)
    average = copy.deepcopy(models[0])
    for mean, values in zip(average.parameters(), zip(*(m.parameters() for m in models), strict=True), strict=True):
        mean.data.copy_(sum(values) / RANKS)
    for mean, values in zip(average.buffers(), zip(*(m.buffers() for m in models), strict=True), strict=True):
        if mean.dtype.is_floating_point:
            mean.copy_(sum(values) / RANKS)
    apart = [float((trainable(m) - trainable(average)).square().sum()) for m in models]

    evaluation = training.evaluate()
    assert evaluation.test_accuracy == share_right(average)
    assert evaluation.test_accuracy_local == [share_right(m) for m in models]
    assert len(set(evaluation.test_accuracy_local)) > 1, "sorted labels tell the ranks apart"
    assert evaluation.consensus_distance == pytest.approx(math.sqrt(sum(apart) / RANKS), rel=1e-9)


def test_many_models_are_judged_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    training = training_of("normed", ranks=7)
    list(training.epoch(1))
    whole = training.evaluate()
    monkeypatch.setattr("mpidec.simulate.training.CHUNK", 2)
    assert training.evaluate() == whole


def test_dropout_draws_for_each_rank_and_is_off_in_evaluation() -> None:
    same = Split(torch.ones(40, 5), torch.zeros(40, dtype=torch.int64))
    training = training_of("dropping", dataset=Dataset(same, DATA.test, 3))
    losses = next(training.epoch(1))
    assert len(set(losses.tolist())) == RANKS
    assert training.evaluate() == training.evaluate()


def test_a_training_repeats() -> None:
    digests = []
    for _ in range(2):
        training = training_of("dropping", algorithm="choco", compressor="random-k", ratio=0.3, dtype="float32")
        list(training.epoch(1))
        digests.append(training.digest())
    assert digests[0] == digests[1]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_digest_is_that_of_the_rows_in_their_order(dtype: str) -> None:
    training = training_of("normed", dtype=dtype)
    list(training.epoch(1))
    rows = [row.numpy().tobytes() for row in training.x]
    assert len(set(rows)) == RANKS
    assert training.digest() == hashlib.sha256(b"".join(rows)).hexdigest()


@pytest.mark.parametrize("rank", range(RANKS))
def test_a_sample_that_is_no_number_names_its_rank(rank: int) -> None:
    clean = training_of("frozen")
    steps = list(clean.shards.batches(1, rank))
    inputs, (sample, *_) = DATA.train.inputs.clone(), (set(steps[1].tolist()) - set(steps[0].tolist()))
    inputs[sample] = torch.nan
    training = training_of("frozen", dataset=Dataset(Split(inputs, DATA.train.labels), DATA.test, 3))
    batches = training.epoch(1)
    next(batches)
    before = training.x.clone()
    with pytest.raises(NonFiniteError, match=rf"^rank {rank}, step 2: the gradient of parameter '3.weight' holds NaN"):
        next(batches)
    assert torch.equal(training.x, before), "nobody has moved"


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_parameters_that_are_no_numbers_are_not_judged(value: float) -> None:
    training = training_of("normed")
    training.x[1, 3] = value
    with pytest.raises(NonFiniteError, match="the parameters of a rank, or their average, hold NaN or infinity"):
        training.evaluate()


def test_synchronous_rules_count_what_ranks_tell_each_other_of_missing_gradients() -> None:
    training = training_of("frozen", "complete", algorithm="allreduce")
    next(training.epoch(1))
    values, flags = 8 * training.x.shape[1], 2 + 1  # of two segments, and of the overflow
    assert training.comm.bytes_sent == RANKS * (values + flags)
    assert (training.x == training.x[0]).all()
    alone = training_of("frozen", "complete", ranks=1, algorithm="allreduce")
    next(alone.epoch(1))
    assert alone.comm.bytes_sent == 0
