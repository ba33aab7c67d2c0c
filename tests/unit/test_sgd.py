"""The local step in one go against torch's own, to the bit."""

from __future__ import annotations

import copy
import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import nn

from mpidec.flat import FlatBuffer
from mpidec.optim import sgd
from mpidec.optim.sgd import SGD
from support.jobs import environment

SETTINGS: list[dict[str, Any]] = [
    {},
    {"momentum": 0.9},
    {"momentum": 0.9, "nesterov": True, "weight_decay": 0.01},
    {"momentum": 0.5, "dampening": 0.3, "weight_decay": 0.1, "maximize": True},
]


def net(dtype: torch.dtype) -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(7, 13), nn.LayerNorm(13), nn.Linear(13, 3, bias=False), nn.Linear(3, 1)).to(dtype)


def groups(model: nn.Module, two: bool) -> list[dict[str, Any]]:
    """One group, or two whose parameters lie mixed."""
    if not two:
        return [{"params": list(model.parameters())}]
    matrices, vectors = ([p for p in model.parameters() if (p.dim() > 1) is many] for many in (True, False))
    return [{"params": matrices}, {"params": vectors, "weight_decay": 0.0, "lr": 0.3}]


def pair(dtype: torch.dtype, two: bool = False, **options: Any) -> tuple[nn.Module, SGD, FlatBuffer, nn.Module, Any]:
    ours, theirs = net(dtype), net(dtype)
    optimizer = SGD(groups(ours, two), lr=0.1, **options)
    flat = FlatBuffer(ours, optimizer.param_groups)
    optimizer.lie_on(flat)
    return ours, optimizer, flat, theirs, torch.optim.SGD(groups(theirs, two), lr=0.1, **{"foreach": False, **options})


def step(number: int, missing: set[int], ours: Any, optimizer: SGD, flat: FlatBuffer, theirs: Any, other: Any) -> None:
    """One step of both, with the same gradients; those of the ``missing`` parameters are none."""
    torch.manual_seed(number)
    for i, (p, q) in enumerate(zip(ours.parameters(), theirs.parameters(), strict=True)):
        q.grad = None if i in missing else torch.randn_like(q)
        p.grad = None if q.grad is None else q.grad.clone()
    flat.bind_grad(flat.collect_grad())
    optimizer.step()
    other.step()
    for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert_equal(p, q)


def assert_equal(p: torch.Tensor, q: torch.Tensor) -> None:
    """To the bit; torch rounds the last entries of a 16-bit tensor otherwise than those before them."""
    several_roundings = 0.03 if p.dtype == torch.bfloat16 else 0
    torch.testing.assert_close(p, q, rtol=several_roundings, atol=several_roundings)


def equal_states(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert one["param_groups"] == [group | {"foreach": None} for group in other["param_groups"]]
    assert one["state"].keys() == other["state"].keys()
    for number, state in other["state"].items():
        assert one["state"][number].keys() == state.keys()
        for name, values in state.items():
            assert_equal(one["state"][number][name], values)


@pytest.mark.parametrize("options", SETTINGS, ids=str)
@pytest.mark.parametrize("two", [False, True], ids=["one group", "two groups"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_the_bits_and_the_state_are_those_of_torch(
    dtype: torch.dtype, two: bool, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sgd, "CHUNK", 50)
    all_of_it = pair(dtype, two, **options)
    for number in range(4):
        step(number, set(), *all_of_it)
    equal_states(all_of_it[1].state_dict(), all_of_it[4].state_dict())


@pytest.mark.parametrize("options", SETTINGS, ids=str)
def test_what_has_no_gradient_stays_and_starts_late(options: dict[str, Any]) -> None:
    all_of_it = pair(torch.float32, **options)
    for number, missing in enumerate([{2, 3}, set(), {0}, set(), set()]):
        step(number, missing, *all_of_it)
    equal_states(all_of_it[1].state_dict(), all_of_it[4].state_dict())


def test_states_are_exchanged_with_torch_in_both_directions() -> None:
    ours, optimizer, flat, theirs, other = pair(torch.float32, momentum=0.9)
    step(0, {1}, ours, optimizer, flat, theirs, other)
    mine, yours = copy.deepcopy(optimizer.state_dict()), copy.deepcopy(other.state_dict())
    step(1, set(), ours, optimizer, flat, theirs, other)
    optimizer.load_state_dict(yours)
    other.load_state_dict(mine)
    for group in optimizer.param_groups:
        group["foreach"] = None
    step(2, set(), ours, optimizer, flat, theirs, other)
    step(3, set(), ours, optimizer, flat, theirs, other)


def test_all_at_once_is_taken_where_it_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths = []
    once = sgd._descend
    monkeypatch.setattr(sgd, "_descend", lambda x, *others: (lengths.append(x.numel()), once(x, *others)))
    ours, optimizer, flat, theirs, other = pair(torch.float32, momentum=0.9)
    step(0, set(), ours, optimizer, flat, theirs, other)
    step(1, {0}, ours, optimizer, flat, theirs, other)
    step(2, set(), ours, optimizer, flat, theirs, other)
    sizes = flat.sizes
    assert lengths == [sum(sizes), *sizes[1:], sum(sizes)]


@pytest.mark.parametrize("form", ["foreach", "fused"])
def test_a_form_of_torch_that_is_asked_for_is_taken(form: str) -> None:
    ours, optimizer, _, theirs, other = pair(torch.float32, momentum=0.9, **{"foreach": None, form: True})
    for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
        p.grad, q.grad = torch.ones_like(p), torch.ones_like(q)
    optimizer.step()
    other.step()
    for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert torch.equal(p, q)


@pytest.mark.parametrize("kind", ["sgd.SGD", "signum.Signum"])
def test_a_step_needs_no_compiler(kind: str) -> None:
    module, name = kind.split(".")
    program = (
        f"import sys, torch; from mpidec.optim.{module} import {name} as Kind; import mpidec\n"
        "model = torch.nn.Linear(2, 3)\n"
        "local = Kind(model.parameters(), lr=0.1, momentum=0.9)\n"
        "optimizer = mpidec.DistributedOptimizer(local, model, mpidec.CHOCO())\n"
        "optimizer.zero_grad(); model(torch.ones(1, 2)).sum().backward(); optimizer.step()\n"
        "optimizer.load_state_dict(optimizer.state_dict())\n"
        "sys.exit('torch._dynamo' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], env=environment(), check=False)
    assert done.returncode == 0
