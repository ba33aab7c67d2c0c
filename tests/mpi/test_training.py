"""Gradients that are missing or overflow, 16-bit models, flat memory, uneven speed."""

from __future__ import annotations

import time

import pytest
import torch
from torch import nn

from mpidec import DPSGD, AllReduce, DistributedOptimizer, World
from mpidec.optim.agreement import digest
from support.problems import loss_of, net
from support.table import TABLE
from support.training import sgd, train, wrap_row

pytestmark = pytest.mark.mpi


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
@pytest.mark.parametrize("rule", ["choco", "allreduce", "ef-sign", "dgc", "local"])
def test_an_overflow_on_one_rank_never_skips_a_round(world: World, rule: str) -> None:
    model = net()
    optimizer = wrap_row(world, model, TABLE[rule])
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
    if optimizer.algorithm.synchronous:
        assert len(set(world.transport.all_gather_objects(digest(optimizer.flat.data)))) == 1


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize(
    "rule", ["choco", "allreduce", "dcd", "ecd", "deepsqueeze", "dgc", "ef-sign", "local", "local-ef-sign"]
)
def test_bf16_models_train(world: World, rule: str) -> None:
    model = net().bfloat16()
    optimizer = wrap_row(world, model, TABLE[rule])
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
    optimizer = wrap_row(world, model, TABLE["choco"])
    train(world.rank, model, optimizer, 1, 20)
    buffers = sum(map(len, world.transport._free.values()))
    started = resident()
    train(world.rank, model, optimizer, 21, 320)
    assert sum(map(len, world.transport._free.values())) == buffers
    assert resident() - started < 8_000_000


@pytest.mark.mpi(min_size=2)
def test_uneven_speed_changes_nothing(world: World) -> None:
    """A rank that sleeps at random ends on the same bits."""
    digests = []
    for pause in (False, True):
        model = net()
        optimizer = wrap_row(world, model, TABLE["choco"])
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
