"""Gradients of every kind: 16-bit, not finite, missing, overflowing, accumulated."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from mpidec import CHOCO, DPSGD
from mpidec.errors import NonFiniteError
from support.problems import loss_of, net
from support.table import LOCALS, RULES, TABLE
from support.training import train, wrap


@pytest.mark.parametrize("rule", RULES)
def test_bf16_models_train_and_remember_in_float32(rule: str) -> None:
    model = net().bfloat16()
    optimizer = wrap(model, RULES[rule], LOCALS[TABLE[rule].locals[0]])
    before = optimizer.flat.data.clone()
    train(0, model, optimizer, 1, 3)
    assert not torch.equal(optimizer.flat.data, before)
    assert all(b.dtype == torch.float32 for b in optimizer.algorithm.buffers())


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("rule", RULES)
def test_a_bad_gradient_is_reported_by_name(rule: str, value: float) -> None:
    model = net()
    optimizer = wrap(model, RULES[rule], LOCALS[TABLE[rule].locals[0]])
    train(0, model, optimizer, 1, 2)
    before = optimizer.flat.data.clone()
    loss_of(model, 0, 3).backward()
    model[2].bias.grad[1] = value
    with pytest.raises(NonFiniteError, match=r"rank 0, step 3: the gradient of parameter '2.bias' holds NaN or inf"):
        optimizer.step()
    assert torch.equal(optimizer.flat.data, before)


def test_large_but_finite_gradients_pass() -> None:
    model = net()
    optimizer = wrap(model, DPSGD, LOCALS["adamw"])
    for p in model.parameters():
        p.grad = torch.full_like(p, 3e38)
    optimizer.step()


def test_parameters_without_gradient_stay() -> None:
    class Half(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.unused = nn.Linear(6, 3), nn.Linear(6, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.used(x)

    for name, row in TABLE.items():
        if row.name == "ecd":
            continue  # its copies carry the noise of whole parameters, also of those that nobody moves
        model = Half()
        before = model.unused.weight.detach().clone()
        train(0, model, wrap(model, row.rule, LOCALS[row.locals[0]]), 1, 3)
        assert torch.equal(model.unused.weight, before), name
        assert model.unused.weight.grad is None


def test_a_scaler_hands_its_overflow_over_and_the_round_goes_on() -> None:
    model = net()
    optimizer = wrap(model, CHOCO, LOCALS["sgd"])
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    plain, reference = net(), None
    reference = LOCALS["sgd"](plain.parameters())
    for step in (1, 2, 3):
        optimizer.zero_grad()
        scaler.scale(loss_of(model, 0, step)).backward()
        if step == 2:
            model[0].bias.grad[0] = float("inf")
        scaler.step(optimizer)
        scaler.update()
        if step != 2:
            train(0, plain, reference, step, step)
    assert optimizer.steps == 3
    assert scaler.get_scale() == 2.0
    for p, q in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(p, q)


def test_accumulated_gradients_equal_one_large_batch() -> None:
    model, plain = net(), net()
    optimizer, reference = wrap(model, DPSGD), LOCALS["nesterov"](plain.parameters())
    optimizer.zero_grad()
    (loss_of(model, 0, 1) / 2).backward()
    (loss_of(model, 0, 2) / 2).backward()
    optimizer.step()
    ((loss_of(plain, 0, 1) + loss_of(plain, 0, 2)) / 2).backward()
    reference.step()
    assert optimizer.steps == 1
    for p, q in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(p, q)
