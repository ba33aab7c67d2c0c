"""The wrapped optimizer on real ranks."""

from __future__ import annotations

import time

import pytest
import torch
from support.problems import batch, loss_of, net
from torch import nn

from mpidec import CHOCO, DPSGD, AllReduce, DistributedOptimizer, Identity, Network, TopK, Topology, UserError, World
from mpidec.optim.agreement import digest

pytestmark = pytest.mark.mpi

RULES = {
    "allreduce": AllReduce,
    "dpsgd": DPSGD,
    "combine-then-adapt": lambda: DPSGD(order="combine-then-adapt"),
    "choco": CHOCO,
    "choco-top-k": lambda: CHOCO(TopK(0.1), gamma=0.1),
    "bf16": lambda: AllReduce(Identity(torch.bfloat16)),
}


def sgd(model: nn.Module, **options: float) -> torch.optim.SGD:
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3, **options)


def wrap(world: World, model: nn.Module, rule, collectives: str = "mpi") -> DistributedOptimizer:
    made = rule()
    graph = Topology.named("complete" if made.central else "ring", world.size)
    network = Network(world.transport, graph, world.collectives(collectives) if made.central else None)
    return DistributedOptimizer(sgd(model), model, made, network)


def train(world: World, model: nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> None:
    for step in range(1, steps + 1):
        optimizer.zero_grad()
        loss_of(model, world.rank, step).backward()
        optimizer.step()


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
def test_the_broadcast_can_be_switched_off(world: World) -> None:
    torch.manual_seed(world.rank)
    model = nn.Linear(3, 3)
    mine = model.weight.detach().clone()
    DistributedOptimizer(sgd(model), model, CHOCO(), broadcast=False)
    assert torch.equal(model.weight, mine)


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda rank: nn.Linear(3, 4 if rank == 1 else 3), r"parameter weight has the shape \(3, 3\).*on rank 1"),
        (lambda rank: nn.Linear(3, 3, bias=rank != 1), "rank 0 has parameter bias where rank 1 has nothing"),
        (lambda rank: nn.Linear(3, 3, bias=rank == 1), "rank 1 has parameter bias, which rank 0 lacks"),
        (lambda rank: nn.Linear(3, 3).to([torch.float32, torch.float64][rank == 1]), "torch.float32 on rank 0, but"),
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
    with pytest.raises(UserError, match="the topologies differ"):
        DistributedOptimizer(sgd(model), model, DPSGD(), graph)


def test_a_graph_of_another_size_is_refused(world: World) -> None:
    with pytest.raises(UserError, match=f"the topology has 9 ranks, but the job has {world.size}"):
        DistributedOptimizer(sgd(model := net()), model, DPSGD(), Topology.named("ring", 9))


class Branches(nn.Module):
    """Parameters that only some ranks, or none, use."""

    def __init__(self) -> None:
        super().__init__()
        self.common, self.odd, self.none = (nn.Linear(6, 3, bias=False) for _ in range(3))

    def forward(self, x: torch.Tensor, odd: bool) -> torch.Tensor:
        return self.common(x) + (self.odd(x) if odd else 0)


@pytest.mark.mpi(min_size=2)
def test_missing_gradients_count_as_zero_centrally(world: World) -> None:
    torch.manual_seed(0)
    model = Branches()
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    optimizer = DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1.0), model, AllReduce())
    model(torch.ones(2, 6), odd=world.rank % 2 == 1).sum().backward()
    optimizer.step()
    share = (world.size // 2) / world.size
    torch.testing.assert_close(model.common.weight, before["common.weight"] - 2.0)
    torch.testing.assert_close(model.odd.weight, before["odd.weight"] - 2.0 * share)
    assert torch.equal(model.none.weight, before["none.weight"])
    assert model.none.weight.grad is None


@pytest.mark.mpi(min_size=2)
def test_frozen_and_tied_parameters_cost_what_they_should(world: World) -> None:
    model = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False))
    model[1].weight = model[0].weight
    model[2].requires_grad_(False)
    optimizer = DistributedOptimizer(sgd(model), model, DPSGD())
    model(torch.ones(2, 4) * world.rank).sum().backward()
    optimizer.step()
    listeners = len(optimizer.comm.topology.listeners(world.rank))
    assert optimizer.comm.bytes_sent == listeners * (16 + 16 * 4)
    assert model[1].weight.data_ptr() == model[0].weight.data_ptr()


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("rule", [CHOCO, AllReduce])
def test_an_overflow_on_one_rank_never_skips_a_round(world: World, rule) -> None:
    model = net()
    optimizer = wrap(world, model, rule)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    for step in (1, 2, 3):
        optimizer.zero_grad()
        scaler.scale(loss_of(model, world.rank, step)).backward()
        if step == 2 and world.rank == 1:
            model[0].bias.grad[0] = float("inf")
        scaler.step(optimizer)
        scaler.update()
    assert optimizer.steps == 3
    assert torch.isfinite(optimizer.flat.data).all()
    if optimizer.algorithm.central:
        assert len(set(world.transport.all_gather_objects(digest(optimizer.flat.data)))) == 1


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("rule", ["choco", "allreduce"])
def test_bf16_models_train(world: World, rule: str) -> None:
    model = net().bfloat16()
    optimizer = wrap(world, model, RULES[rule])
    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        loss = loss_of(model, world.rank, 1)
        loss.backward()
        optimizer.step()
        losses.append(sum(world.transport.all_gather_objects(loss.item())))
    assert losses[-1] < losses[0]


@pytest.mark.mpi(min_size=2)
def test_memory_and_buffers_stay_flat(world: World) -> None:
    model = net()
    optimizer = wrap(world, model, CHOCO)
    train(world, model, optimizer, 20)
    buffers = sum(map(len, world.transport._free.values()))
    started = resident()
    train(world, model, optimizer, 300)
    assert sum(map(len, world.transport._free.values())) == buffers
    assert resident() - started < 8_000_000


@pytest.mark.mpi(min_size=2)
def test_uneven_speed_changes_nothing(world: World) -> None:
    """A rank that sleeps at random ends on the same bits."""
    digests = []
    for pause in (False, True):
        model = net()
        optimizer = wrap(world, model, CHOCO)
        for step in range(1, 31):
            if pause and (step + world.rank) % 7 == 0:
                time.sleep(0.01)
            optimizer.zero_grad()
            loss_of(model, world.rank, step).backward()
            optimizer.step()
        digests.append(digest(optimizer.flat.data))
    assert digests[0] == digests[1]


def resident() -> int:
    """Bytes of memory that this process holds."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096
