"""Training on ranks that are threads, through ``init()`` as in a job, lands on the bits of a simulation on rows."""

from __future__ import annotations

import copy
import time
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from mpidec import (
    CHOCO,
    DPSGD,
    AllReduce,
    DistributedOptimizer,
    Sign,
    TopK,
    Topology,
    UserError,
    World,
)
from mpidec.errors import tell
from mpidec.optim.agreement import digest
from mpidec.world import run_on_threads
from support.problems import loss_of, net
from support.training import simulate

pytestmark = pytest.mark.timeout(60)

RANKS = pytest.mark.parametrize("n", [1, 2, 3, 5])
STEPS = 10
RULES = {
    "allreduce": AllReduce,
    "dpsgd": DPSGD,
    "choco": CHOCO,
    "choco-top-k": lambda: CHOCO(TopK(0.1), gamma=0.1),
}


def sgd(parameters: Any) -> torch.optim.SGD:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=1e-3)


def trained(n: int, rule: str, topology: str | None) -> torch.Tensor:
    """The parameters after ``STEPS`` steps on each of ``n`` threads, shape ``(n, d)``."""
    start = net().double()

    def work(here: World) -> torch.Tensor:
        model = copy.deepcopy(start)
        optimizer = DistributedOptimizer(sgd(model.parameters()), model, RULES[rule](), topology)
        for step in range(1, STEPS + 1):
            optimizer.zero_grad()
            loss_of(model, here.rank, step).backward()
            optimizer.step()
        return optimizer.flat.data

    return torch.stack(run_on_threads(work, n))


def simulated(n: int, rule: str, topology: str) -> torch.Tensor:
    """The same on the rows of one matrix."""
    return simulate(RULES[rule](), sgd, Topology.named(topology, n), STEPS)


@RANKS
@pytest.mark.parametrize("topology", [None, "complete"])
@pytest.mark.parametrize("rule", ["dpsgd", "choco", "choco-top-k"])
def test_gossip_equals_rows(n: int, rule: str, topology: str | None) -> None:
    ranks = trained(n, rule, topology)
    assert torch.equal(ranks, simulated(n, rule, topology or "ring"))
    assert n < 3 or not torch.equal(ranks[0], ranks[1]), "the ranks have data of their own"


@RANKS
def test_allreduce_keeps_replicas_bit_equal(n: int) -> None:
    ranks = trained(n, "allreduce", None)
    assert all(torch.equal(one, ranks[0]) for one in ranks)
    torch.testing.assert_close(ranks, simulated(n, "allreduce", "complete"), rtol=0, atol=1e-12)


def test_all_start_from_rank_0_whatever_the_shared_generator_gives() -> None:
    def work(here: World) -> tuple[str, str, int]:
        torch.manual_seed(here.rank)
        model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
        model[1].num_batches_tracked.fill_(here.rank)
        mine = digest(model[0].weight)
        optimizer = DistributedOptimizer(sgd(model.parameters()), model, CHOCO())
        return mine, digest(optimizer.flat.split(optimizer.flat.data)["0.weight"]), int(model[1].num_batches_tracked)

    ranks = run_on_threads(work, 3)
    assert {(start, tracked) for _, start, tracked in ranks} == {(ranks[0][0], 0)}


def test_different_rules_are_told_once(capsys) -> None:
    def work(here: World) -> None:
        model = nn.Linear(2, 2)
        rule = CHOCO(TopK(0.1)) if here.rank == 1 else CHOCO(Sign())
        DistributedOptimizer(sgd(model.parameters()), model, rule)

    with pytest.raises(UserError, match="the ranks differ in their compressor: Sign") as caught:
        run_on_threads(work, 3)
    tell(caught.value)
    out, err = capsys.readouterr()
    assert (out, err.count("\n"), err.count("the ranks differ")) == ("", 1, 1)


def test_gradients_are_on_in_every_thread() -> None:
    with torch.no_grad():
        assert run_on_threads(lambda here: torch.is_grad_enabled(), 2) == [True, True]

    def switch(here: World) -> bool:
        torch.set_grad_enabled(here.rank == 0)
        here.transport.barrier()
        time.sleep(0.01)
        return torch.is_grad_enabled()

    assert run_on_threads(switch, 2) == [True, False]
    assert torch.is_grad_enabled()


def test_data_loaders_with_workers_run_inside() -> None:
    data = TensorDataset(torch.arange(12.0))

    def work(here: World) -> float:
        return sum(float(batch.sum()) for (batch,) in DataLoader(data, batch_size=4, num_workers=1))

    assert run_on_threads(work, 2) == [66.0, 66.0]
