"""fp16 on several ranks: one scale, whoever overflows."""

from __future__ import annotations

import pytest
import torch

from mpidec import DPSGD, DistributedOptimizer, World, run_on_threads
from mpidec.optim.scaler import EqualScaler
from support.problems import loss_of, net
from support.training import network_of


@pytest.mark.parametrize("enabled", [True, False])
def test_the_scale_is_the_same_on_all_ranks(enabled: bool) -> None:
    def work(world: World) -> list[float]:
        model, rule = net(), DPSGD()
        local = torch.optim.SGD(model.parameters(), lr=0.1)
        optimizer = DistributedOptimizer(local, model, rule, network_of(world, rule))
        scaler = EqualScaler(world.transport, torch.device("cpu"), enabled)
        if enabled:
            scaler.load_state_dict({**scaler.state_dict(), "scale": 1024.0, "growth_interval": 3, "_growth_tracker": 0})
        scales, counts = [], []
        for step in range(1, 13):
            optimizer.zero_grad()
            scaler.scale(loss_of(model, world.rank, step)).backward()
            if enabled and (step, world.rank) in ((2, 1), (7, 0)):
                model[0].bias.grad[0] = float("inf")
            scaler.step(optimizer)
            scaler.update()
            scales.append(scaler.get_scale())
            counts.append(scaler.state_dict().get("_growth_tracker"))
        assert optimizer.steps == 12
        return [*scales, *counts]

    first, *others = run_on_threads(work, 3)
    assert all(one == first for one in others), "scales, and what counts the steps to their growth"
    if enabled:
        k = 1024.0
        assert first[:12] == [k, k / 2, k / 2, k / 2, k, k, k / 2, k / 2, k / 2, k, k, k]
        assert first[12:] == [1, 0, 1, 2, 0, 1, 0, 1, 2, 0, 1, 2]
    else:
        assert first[:12] == [1.0] * 12
