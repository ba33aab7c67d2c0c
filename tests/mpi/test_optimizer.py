"""The wrapped optimizer on real ranks."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from mpidec import CHOCO, DPSGD, DistributedOptimizer, TopK, Topology, UserError, World
from mpidec.optim.agreement import digest
from support.problems import batch, loss_of, net
from support.table import LOCALS, TABLE
from support.training import sgd, train, wrap_row

pytestmark = pytest.mark.mpi


@pytest.mark.parametrize("collectives", ["mpi", "horovod"])
@pytest.mark.parametrize("name", ["allreduce", "local"])
def test_large_batch_sgd_in_one_process(world: World, name: str, collectives: str) -> None:
    if collectives == "horovod":
        pytest.importorskip("horovod.torch", reason="Horovod is not installed")
    model, plain = net().double(), net().double()
    every_step = {"period": 1} if name == "local" else {}
    optimizer = wrap_row(world, model, TABLE[name], collectives=collectives, **every_step)
    reference = LOCALS["nesterov"](plain.parameters())
    for step in range(1, 21):
        optimizer.zero_grad()
        loss_of(model, world.rank, step).backward()
        optimizer.step()
        reference.zero_grad()
        inputs, labels = zip(*(batch(rank, step) for rank in range(world.size)), strict=True)
        nn.functional.cross_entropy(plain(torch.cat(inputs).double()).float(), torch.cat(labels)).backward()
        reference.step()
    for p, q in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=0, atol=1e-6)


@pytest.mark.mpi(min_size=2)
def test_all_ranks_start_from_rank_0_buffers_included(world: World) -> None:
    torch.manual_seed(world.rank)
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    model[1].running_mean.fill_(world.rank)
    model[1].num_batches_tracked.fill_(world.rank)
    optimizer = DistributedOptimizer(sgd(model), model, CHOCO())
    assert len(set(world.transport.all_gather_objects(digest(optimizer.flat.data)))) == 1
    assert not model[1].running_mean.any()
    assert model[1].num_batches_tracked == 0


@pytest.mark.mpi(min_size=2)
def test_different_rules_are_refused(world: World) -> None:
    with pytest.raises(UserError, match="the ranks differ in their compressor: Sign"):
        DistributedOptimizer(sgd(model := net()), model, CHOCO(None if world.rank != 1 else TopK(0.1)))
    with pytest.raises(UserError, match=r"the ranks differ in their algorithm: CHOCO\(gamma=0.1, resync=0\) on rank 0"):
        DistributedOptimizer(sgd(model := net()), model, CHOCO(gamma=0.1 if world.rank != 1 else 0.2))
    with pytest.raises(UserError, match="the ranks differ in their steps_per_epoch: 10 on rank 0, but 11 on rank 1"):
        DistributedOptimizer(sgd(model := net()), model, CHOCO(), steps_per_epoch=10 + (world.rank == 1))
    with pytest.raises(UserError, match=r"in their algorithm: DPSGD\(.* on rank 0, but CHOCO\(.* on rank 1"):
        DistributedOptimizer(sgd(model := net()), model, CHOCO() if world.rank == 1 else DPSGD())


@pytest.mark.mpi(min_size=2)
def test_frozen_parameters_start_from_rank_0_too(world: World) -> None:
    torch.manual_seed(world.rank)
    model = net(seed=world.rank)
    model[0].requires_grad_(False)
    DistributedOptimizer(sgd(model), model, CHOCO())
    assert len(set(world.transport.all_gather_objects(digest(model[0].weight)))) == 1


@pytest.mark.mpi(min_size=2)
def test_a_rule_on_gradients_need_not_be_central(world: World) -> None:
    class Still(DPSGD):
        def reduce(self, g, x, comm, step) -> None:
            g.zero_()

    model = net()
    optimizer = DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1.0), model, Still())
    before = optimizer.flat.data.clone()
    train(world.rank, model, optimizer, 1, 2)
    torch.testing.assert_close(optimizer.flat.data, before)


@pytest.mark.mpi(min_size=2)
def test_the_broadcast_can_be_switched_off(world: World) -> None:
    torch.manual_seed(world.rank)
    model = nn.Linear(3, 3)
    mine = model.weight.detach().clone()
    DistributedOptimizer(sgd(model), model, CHOCO(), broadcast=False)
    assert torch.equal(model.weight, mine)


def freezing(rank: int) -> nn.Module:
    model = nn.Linear(3, 3)
    model.bias.requires_grad_(rank != 1)
    return model


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda rank: nn.Linear(3, 4 if rank == 1 else 3), r"parameter weight is .*\(3, 3\).*on rank 1"),
        (lambda rank: nn.Linear(3, 3, bias=rank != 1), "rank 0 has parameter bias where rank 1 has nothing"),
        (lambda rank: nn.Linear(3, 3, bias=rank == 1), "rank 1 has parameter bias, which rank 0 lacks"),
        (lambda rank: nn.Linear(3, 3).to([torch.float32, torch.float64][rank == 1]), "torch.float32 on rank 0, but"),
        (freezing, r"parameter bias is to be trained, shape \(3,\), torch.float32 on rank 0, but shape"),
    ],
)
def test_different_models_are_named(world: World, make, complaint: str) -> None:
    model = make(world.rank)
    with pytest.raises(UserError, match=complaint):
        DistributedOptimizer(sgd(model), model, DPSGD())


@pytest.mark.mpi(min_size=4)
def test_different_graphs_are_refused(world: World) -> None:
    model = net()
    graph = Topology.named("ring" if world.rank else "complete", world.size)
    with pytest.raises(UserError, match="the ranks differ in their topology"):
        DistributedOptimizer(sgd(model), model, DPSGD(), graph)


def test_a_graph_of_another_size_is_refused(world: World) -> None:
    with pytest.raises(UserError, match=f"the topology has 9 ranks, but the job has {world.size}"):
        DistributedOptimizer(sgd(model := net()), model, DPSGD(), Topology.named("ring", 9))
