"""Steps in which there is nothing to learn from: overflows, and parameters that nobody uses."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from mpidec import DistributedOptimizer, World, run_on_threads
from support.problems import loss_of, net
from support.table import TABLE
from support.training import train, wrap_row

SYNCHRONOUS = [name for name, row in TABLE.items() if row.entry.central and not row.name.startswith("local")]


class Branches(nn.Module):
    """``sometimes`` has a gradient in the first step only, ``never`` in none."""

    def __init__(self) -> None:
        super().__init__()
        self.always, self.sometimes, self.never = net(), nn.Linear(6, 3), nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.always(x) + (self.sometimes(x) if self.first else 0)


def memories(optimizer: DistributedOptimizer, name: str) -> list[torch.Tensor]:
    """What the rule keeps of the parameter ``name``, and the parameter."""
    place = next(s.place for s in optimizer.flat.segments if s.name == name)
    return [flat[place].clone() for flat in (optimizer.flat.data, *optimizer.algorithm.buffers())]


@pytest.mark.parametrize("name", SYNCHRONOUS)
def test_what_nobody_uses_neither_moves_nor_is_forgotten(name: str) -> None:
    """Also a parameter that was used before: what waits in a memory goes on waiting."""

    def work(world: World) -> None:
        model = Branches()
        optimizer = wrap_row(world, model, TABLE[name])
        start = memories(optimizer, "never.weight")
        for step in range(1, 5):
            optimizer.zero_grad()
            model.first = step == 1
            loss_of(model, world.rank, step).backward()
            optimizer.step()
            if step == 1:
                after_use = memories(optimizer, "sometimes.weight")
        assert all(map(torch.equal, memories(optimizer, "never.weight"), start))
        assert all(map(torch.equal, memories(optimizer, "sometimes.weight"), after_use))
        assert not all(map(torch.equal, memories(optimizer, "always.0.weight"), start))

    run_on_threads(work, 2)


@pytest.mark.parametrize("name", TABLE)
def test_an_overflow_leaves_no_trace(name: str) -> None:
    """A gradient of infinities on one rank, under a scaler: nothing enters a memory, and the run goes on."""

    def work(world: World) -> None:
        model, row = net(), TABLE[name]
        optimizer = wrap_row(world, model, row)
        scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
        for step in range(1, 7):
            optimizer.zero_grad()
            scaler.scale(loss_of(model, world.rank, step)).backward()
            if step == 2 and world.rank == 1:
                for p in model.parameters():
                    p.grad.fill_(torch.inf)
            before = [flat.clone() for flat in (optimizer.flat.data, *optimizer.algorithm.buffers())]
            scaler.step(optimizer)
            scaler.update()
            after = [optimizer.flat.data, *optimizer.algorithm.buffers()]
            assert all(torch.isfinite(flat).all() for flat in after)
            if step == 2 and name in SYNCHRONOUS:
                assert all(map(torch.equal, before, after)), "all ranks leave the step out"
        assert optimizer.steps == 6

    run_on_threads(work, 2)


@pytest.mark.parametrize("name", ["choco", "dpsgd", "local", "allreduce"])
def test_a_run_without_overflow_is_the_same_with_and_without_a_scaler(name: str) -> None:
    def work(world: World) -> None:
        model, plain = net(), net()
        optimizer, reference = wrap_row(world, model, TABLE[name]), wrap_row(world, plain, TABLE[name])
        scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
        for step in range(1, 4):
            optimizer.zero_grad()
            scaler.scale(loss_of(model, world.rank, step)).backward()
            scaler.step(optimizer)
            scaler.update()
        train(world.rank, plain, reference, 1, 3)
        torch.testing.assert_close(optimizer.flat.data, reference.flat.data)

    run_on_threads(work, 2)
