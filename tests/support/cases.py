"""What every row of the table must satisfy on real ranks, be they MPI processes or threads."""

from __future__ import annotations

import copy

import torch

from mpidec import DistributedOptimizer, World
from mpidec.optim.agreement import digest
from support.problems import net
from support.table import LOCALS, TABLE
from support.training import graph_of, network_of, simulate, train, wrap_row


def lands_where_its_row_does(world: World, name: str) -> None:
    row, model = TABLE[name], net().double()
    optimizer = wrap_row(world, model, row)
    train(world.rank, model, optimizer, 1, 7)
    rule = row.rule()
    expected = simulate(rule, LOCALS[row.locals[0]], graph_of(rule, world.size), 7)[world.rank]
    torch.testing.assert_close(optimizer.flat.data, expected, rtol=0, atol=1e-3 if "bf16" in name else 1e-10)


def repeats_and_keeps_replicas_bit_equal(world: World, name: str) -> None:
    """Two runs end on the same bits; under a central rule all ranks do, once they have met."""
    row, digests = TABLE[name], []
    for _ in range(2):
        model = net()
        optimizer = wrap_row(world, model, row)
        train(world.rank, model, optimizer, 1, 6)  # 6: local rows synchronise every 3 steps
        digests.append(digest(optimizer.flat.data))
    assert digests[0] == digests[1]
    if row.entry.central:
        assert len(set(world.transport.all_gather_objects(digests[0]))) == 1


def resumes_on_the_same_bits(world: World, name: str) -> None:
    row, model = TABLE[name], net()
    optimizer = wrap_row(world, model, row)
    train(world.rank, model, optimizer, 1, 5)
    saved = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
    train(world.rank, model, optimizer, 6, 10)
    again = net(seed=7)
    resumed = wrap_row(world, again, row)
    again.load_state_dict(saved[0])
    resumed.load_state_dict(saved[1])
    train(world.rank, again, resumed, 6, 10)
    assert torch.equal(resumed.flat.data, optimizer.flat.data)


def moves_the_mean_as_local_steps_do(world: World, name: str) -> None:
    """Where the row says so: what gossip adds to the local steps cancels over the ranks, in every step."""
    row = TABLE[name]
    if not row.keeps_mean:
        return
    model = net().double()
    optimizer = wrap_row(world, model, row, "sgd")
    for step in range(1, 6):
        before = optimizer.flat.data.clone()
        train(world.rank, model, optimizer, step, step)
        ours, theirs = optimizer.flat.data.clone(), before - optimizer.param_groups[0]["lr"] * optimizer.flat.grad
        world.transport.all_reduce(ours)
        world.transport.all_reduce(theirs)
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)


def keeps_the_learning_rates_of_its_groups(world: World, name: str) -> None:
    """A group with the rate 0 stays where all ranks began; the other one moves."""
    row, model = TABLE[name], net()
    local = LOCALS[row.locals[0]](
        [{"params": model[0].parameters(), "lr": 0.05}, {"params": model[2].parameters(), "lr": 0.0}]
    )
    # Where the row is exact without compression, the noise of its messages is none of the rates' business.
    rule = row.rule(**(row.exact or {}))
    optimizer = DistributedOptimizer(local, model, rule, network_of(world, rule), steps_per_epoch=4)
    before = [p.detach().clone() for p in model.parameters()]
    train(world.rank, model, optimizer, 1, 6)
    still = [torch.allclose(p, b, atol=1e-6) for p, b in zip(model.parameters(), before, strict=True)]
    assert still == [False, False, True, True]


CASES = [
    lands_where_its_row_does,
    repeats_and_keeps_replicas_bit_equal,
    resumes_on_the_same_bits,
    moves_the_mean_as_local_steps_do,
    keeps_the_learning_rates_of_its_groups,
]
