"""Learning rates over a run, step by step."""

from __future__ import annotations

import math
import warnings

import pytest
import torch

from mpidec import Topology
from mpidec.train.config import Config
from mpidec.train.schedule import factor, scheduler

STEPS = 10  # of an epoch
RING = Topology.named("ring", 8)


def rates(graph: Topology = RING, **options: object) -> list[float]:
    """The rate of every step of a run of four epochs."""
    config = Config(epochs=4, lr=0.8, **options)
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.8)
    schedule = scheduler(config, optimizer, graph, STEPS)
    seen = []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(4 * STEPS):
            seen.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            schedule.step()
    return seen


def test_constant() -> None:
    assert rates() == [0.8] * 40


def test_multistep_falls_at_its_fractions() -> None:
    expected = [0.8] * 20 + [0.08] * 10 + [0.008] * 10
    assert rates(schedule="multistep") == pytest.approx(expected)
    assert rates(schedule="multistep", milestones="0.25", lr_factor=0.5) == [0.8] * 10 + [0.4] * 30


def test_cosine_falls_to_zero() -> None:
    seen = rates(schedule="cosine")
    assert seen == pytest.approx([0.4 * (1 + math.cos(math.pi * t / 40)) for t in range(40)])


def test_onecycle_rises_and_falls() -> None:
    seen = rates(schedule="onecycle")
    assert max(seen) == pytest.approx(0.8)
    assert 0 < seen.index(max(seen)) < 20
    assert seen[-1] < seen[0] / 10
    assert seen[-1] == min(seen)


def test_a_warm_up_rises_and_the_rest_falls_where_it_would() -> None:
    seen = rates(schedule="multistep", lr_warmup=0.5)
    assert seen[:6] == pytest.approx([0.08 + 0.72 * t / 5 for t in range(6)])
    assert seen[5:20] == pytest.approx([0.8] * 15)
    assert seen[20:30] == pytest.approx([0.08] * 10)
    assert rates(lr_warmup=9.0)[-1] < 0.8, "longer than the run: it only rises"
    cosine = rates(schedule="cosine", lr_warmup=1.0)
    assert (cosine[10], cosine[39]) == pytest.approx((0.8, 0.4 * (1 + math.cos(math.pi * 29 / 30))))


@pytest.mark.parametrize(
    ("scale", "graph", "expected"),
    [
        ("none", RING, 1),
        ("ranks", RING, 8),
        ("degree", RING, 3),
        ("degree", Topology.named("complete", 4), 4),
        ("degree", Topology.named("star", 4), 2.5),
        ("degree", Topology.named("one_peer_exponential", 8), 2),
        ("degree", Topology.named("ring", 1), 1),
    ],
    ids=str,
)
def test_linear_scaling(scale: str, graph: Topology, expected: float) -> None:
    assert factor(Config(scale_lr=scale), graph) == expected
    seen = rates(graph, scale_lr=scale, lr_warmup=1.0)
    assert seen[10] == pytest.approx(0.8 * expected)
    assert seen[0] == pytest.approx(0.8 if expected > 1 else 0.08)
