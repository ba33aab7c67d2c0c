"""The averaged model, the distance to it, and the digest of all: on ranks with known parameters."""

from __future__ import annotations

import hashlib

import pytest
import torch
from torch import nn

from mpidec import FlatBuffer, World, init
from mpidec.optim.averaging import average, swapped
from mpidec.train.data.dataset import Split
from mpidec.train.evaluate import evaluate, parameters_digest

pytestmark = pytest.mark.mpi


def test_accuracies_and_distance(world: World) -> None:
    """Rank r scores class 0 with 1 and class 1 with x - r: it takes a sample x for class 1 where x > r + 1."""
    model = nn.Linear(1, 2)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[0.0], [1.0]]))
        model.bias.copy_(torch.tensor([1.0, -float(world.rank)]))
    flat = FlatBuffer(model)
    before = flat.data.clone()
    inputs = torch.arange(100.0).unsqueeze(1) / 10
    mean_rank = (world.size - 1) / 2
    test = Split(inputs, (inputs[:, 0] > mean_rank + 1).long())
    evaluation = evaluate(world.transport, model, flat, test)
    assert evaluation.test_accuracy == 1.0, "the averaged model knows the truth"
    for rank, accuracy in enumerate(evaluation.test_accuracy_local):
        wrong = ((inputs[:, 0] > rank + 1) != (inputs[:, 0] > mean_rank + 1)).sum().item()
        assert accuracy == pytest.approx(1 - wrong / 100)
    spread = sum((rank - mean_rank) ** 2 for rank in range(world.size)) / world.size
    assert evaluation.consensus_distance == pytest.approx(spread**0.5)
    assert torch.equal(flat.data, before)
    assert model.training


def test_batchnorm_in_the_averaged_model(world: World) -> None:
    model = nn.BatchNorm1d(2)
    model.running_var.fill_(world.rank + 1.0)
    model.num_batches_tracked.fill_(world.rank)
    flat = FlatBuffer(model)
    mean = average(world.transport, flat.data)
    with torch.no_grad(), swapped(world.transport, model, flat.data, mean, "average", ()):
        assert model.running_var.tolist() == [(world.size + 1) / 2] * 2
        assert model.num_batches_tracked == world.rank, "an integer counter stays this rank's own"
    assert model.running_var.tolist() == [world.rank + 1.0] * 2


def test_digest_is_sha256_over_all_ranks_in_order(world: World) -> None:
    everyone = torch.arange(world.size * 10.0).view(world.size, 10)
    digest = parameters_digest(world.transport, everyone[world.rank].clone())
    expected = hashlib.sha256(everyone.numpy().tobytes()).hexdigest()
    assert digest == (expected if world.rank == 0 else "")


@pytest.mark.mpi(min_size=4)
def test_a_communicator_of_ones_own(world: World) -> None:
    """Two halves of the job, each on its own; afterwards the whole again."""
    from mpi4py import MPI

    half = init(MPI.COMM_WORLD.Split(world.rank % 2), device="cpu")
    assert (half.size, half.rank) == (world.size // 2, world.rank // 2)
    assert init() is half
    values = torch.tensor([float(world.rank)])
    half.transport.all_reduce(values)
    assert values.item() == sum(range(world.rank % 2, world.size, 2))
    assert init(MPI.COMM_WORLD, device="cpu").size == world.size
