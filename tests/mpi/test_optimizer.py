"""The wrapped optimizer on real ranks."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from mpidec import CHOCO, DPSGD, AllReduce, DistributedOptimizer, TopK, Topology, UserError, World
from mpidec.optim.agreement import digest
from support.problems import batch, loss_of, net
from support.ranked import RULES, sgd, train, wrap

pytestmark = pytest.mark.mpi


@pytest.mark.parametrize("collectives", ["mpi", "horovod"])
def test_allreduce_equals_large_batch_sgd_in_one_process(world: World, collectives: str) -> None:
    if collectives == "horovod":
        pytest.importorskip("horovod.torch", reason="Horovod is not installed")
    model, plain = net().double(), net().double()
    optimizer, reference = wrap(world, model, AllReduce, collectives), sgd(plain)
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


@pytest.mark.parametrize("rule", RULES)
def test_the_mean_moves_as_under_local_steps_alone(world: World, rule: str) -> None:
    """One step from equal starts: gossip and means keep the mean over the ranks of the local steps."""
    model, plain = net().double(), net().double()
    train(world, model, wrap(world, model, RULES[rule]), 1)
    train(world, plain, sgd(plain), 1)
    for p, q in zip(model.parameters(), plain.parameters(), strict=True):
        ours, theirs = p.detach().clone(), q.detach().clone()
        world.transport.all_reduce(ours)
        world.transport.all_reduce(theirs)
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-3 if rule == "bf16" else 1e-12)


@pytest.mark.parametrize("rule", RULES)
def test_two_runs_are_bit_identical_and_central_replicas_equal(world: World, rule: str) -> None:
    digests = []
    for _ in range(2):
        model = net()
        optimizer = wrap(world, model, RULES[rule], "auto")
        train(world, model, optimizer, 10)
        digests.append(digest(optimizer.flat.data))
    assert digests[0] == digests[1]
    if optimizer.algorithm.central:
        assert len(set(world.transport.all_gather_objects(digests[0]))) == 1


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
    with pytest.raises(UserError, match=r"the ranks differ in their algorithm: CHOCO\(gamma=0.1\) on rank 0"):
        DistributedOptimizer(sgd(model := net()), model, CHOCO(gamma=0.1 if world.rank != 1 else 0.2))
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
@pytest.mark.parametrize("rule", ["choco", "choco-top-k", "allreduce"])
def test_a_resumed_run_ends_on_the_same_bits(world: World, rule: str) -> None:
    model = net()
    optimizer = wrap(world, model, RULES[rule])
    train(world, model, optimizer, 5)
    saved = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
    train(world, model, optimizer, 5)
    again = net(seed=7)
    resumed = wrap(world, again, RULES[rule])
    again.load_state_dict(saved[0])
    resumed.load_state_dict(saved[1])
    train(world, again, resumed, 5)
    assert torch.equal(resumed.flat.data, optimizer.flat.data)


@pytest.mark.mpi(min_size=2)
def test_a_rule_on_gradients_need_not_be_central(world: World) -> None:
    class Still(DPSGD):
        def reduce(self, g, x, comm, step) -> None:
            g.zero_()

    model = net()
    optimizer = DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1.0), model, Still())
    before = optimizer.flat.data.clone()
    train(world, model, optimizer, 2)
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
