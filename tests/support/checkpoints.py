"""States of ranks that are told apart at a glance, and whole runs of them on the disk."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
import torch
from torch import Tensor

from mpidec import UserError, World, run_on_threads
from mpidec.train.checkpoint.store import Checkpoints
from mpidec.transport.base import Transport

Result = TypeVar("Result")


def state_of(rank: int, step: int) -> dict[str, Any]:
    """What ``rank`` holds after ``step``: a parameter, a frozen one, BatchNorm's buffers, and an optimizer's state."""
    value = 10.0 * step + rank
    return {
        "model": {
            "weight": torch.full((2, 3), value),
            "frozen": torch.full((3,), 0.1),
            "running_var": torch.full((3,), float(rank)),
            "count": torch.tensor(rank + 5),
        },
        "optimizer": {
            "rule": "mpidec.optim.choco.CHOCO",
            "shapes": {"weight": [2, 3]},
            "local": {"state": {0: {"momentum_buffer": torch.ones(2, 3)}}, "param_groups": [{"lr": 0.1}]},
            "algorithm": {"x_hat": {"weight": torch.full((2, 3), float(rank))}},
            "steps": step,
        },
        "rng": {"torch": torch.get_rng_state()},
        "position": {"epoch": 1, "batch": step},
        "metrics": {"loss": 0.5},
    }


def about(step: int) -> dict[str, Any]:
    return {
        "step": step,
        "epoch": 1,
        "algorithm": "choco",
        "compressor": "sign",
        "topology": "ring",
        "config": {"lr": 0.1, "out": Path("runs/x")},
    }


def save(transport: Transport, run: Path, *steps: int, keep: int = 10) -> Checkpoints:
    """A checkpoint after each of ``steps``."""
    store = Checkpoints(run, transport, keep)
    for step in steps:
        store.save(state_of(transport.rank, step), about(step))
    return store


def on_ranks(size: int, work: Callable[[Transport], Result]) -> list[Result]:
    """What ``work`` returns on each of ``size`` ranks that are threads."""

    def begin(world: World) -> Result:
        return work(world.transport)

    return run_on_threads(begin, size)


def sentences(size: int, work: Callable[[Transport], Any]) -> str:
    """The one sentence with which ``work`` ends on every rank."""

    def ends(transport: Transport) -> str:
        with pytest.raises(UserError) as caught:
            work(transport)
        return str(caught.value)

    told = on_ranks(size, ends)
    assert len(set(told)) == 1, told
    assert "\n" not in told[0]
    return told[0]


def step(run: Path, number: int) -> Path:
    """The folder of that checkpoint."""
    return run / "checkpoints" / f"step-{number:08d}"


def told(run: Path, path: Path | None = None, ranks: int = 3) -> str:
    """The sentence with which loading ends on all ranks."""
    return sentences(ranks, lambda transport: Checkpoints(run, transport, 1).load(path or run))


def same(one: Any, other: Any) -> bool:
    """Whether two states hold the same, bit by bit."""
    if isinstance(one, Tensor):
        return isinstance(other, Tensor) and one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, dict):
        return isinstance(other, dict) and one.keys() == other.keys() and all(same(one[k], other[k]) for k in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def tree(run: Path) -> list[str]:
    """All files and folders below ``run``."""
    return sorted(str(path.relative_to(run)) for path in run.rglob("*"))
