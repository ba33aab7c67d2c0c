"""The wrapped optimizer keeps the habits of torch."""

from __future__ import annotations

import copy

import pytest
import torch
from support.problems import alone, loss_of, net
from torch import nn

from mpidec import CHOCO, DPSGD, AllReduce, DistributedOptimizer, Identity, Sign, TopK, UserError

RULES = {
    "allreduce": AllReduce,
    "dpsgd": DPSGD,
    "combine-then-adapt": lambda: DPSGD(order="combine-then-adapt"),
    "choco": CHOCO,
}
LOCALS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "nesterov": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-3),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01),
}


def wrap(model: nn.Module, rule=CHOCO, local=LOCALS["nesterov"], **options) -> DistributedOptimizer:
    return DistributedOptimizer(local(model.parameters()), model, rule(), alone(), **options)


def train(model: nn.Module, optimizer: torch.optim.Optimizer, first: int, last: int) -> None:
    for step in range(first, last + 1):
        optimizer.zero_grad()
        loss_of(model, 0, step).backward()
        optimizer.step()


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("local", LOCALS)
def test_one_rank_alone_takes_the_local_steps(rule: str, local: str) -> None:
    """Every algorithm is valid at n = 1, and there the local optimizer alone moves the one rank."""
    model, plain = net(), net()
    optimizer = wrap(model, RULES[rule], LOCALS[local])
    reference = LOCALS[local](plain.parameters())
    train(model, optimizer, 1, 6)
    train(plain, reference, 1, 6)
    for p, q in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(p, q)


def test_is_an_optimizer_whose_groups_and_state_are_the_local_ones() -> None:
    model = net()
    optimizer = wrap(model)
    assert isinstance(optimizer, torch.optim.Optimizer)
    assert optimizer.param_groups is optimizer.local.param_groups
    train(model, optimizer, 1, 1)
    assert optimizer.state is optimizer.local.state
    assert len(optimizer.state) == 4
    with pytest.raises(UserError, match="cannot be added after the wrap"):
        optimizer.add_param_group({"params": []})
    assert "SGD" in repr(optimizer.local)
    assert repr(optimizer)


@pytest.mark.parametrize("set_to_none", [True, False])
def test_zero_grad(set_to_none: bool) -> None:
    model = net()
    optimizer = wrap(model, AllReduce)
    for step in (1, 2):
        optimizer.zero_grad(set_to_none=set_to_none)
        loss_of(model, 0, step).backward()
        expected = [p.grad.clone() for p in model.parameters()]
        optimizer.step()
        assert all(torch.equal(p.grad, g) for p, g in zip(model.parameters(), expected, strict=True))
    optimizer.zero_grad(set_to_none=set_to_none)
    assert all((p.grad is None) if set_to_none else not p.grad.any() for p in model.parameters())


def test_closure_is_evaluated_once_and_first() -> None:
    model, plain = net(), net()
    optimizer, reference, calls = wrap(model), LOCALS["nesterov"](plain.parameters()), []

    def closure() -> torch.Tensor:
        calls.append(1)
        optimizer.zero_grad()
        loss = loss_of(model, 0, 1)
        loss.backward()
        return loss

    loss = optimizer.step(closure)
    assert (len(calls), loss.item()) == (1, pytest.approx(loss_of(plain, 0, 1).item()))
    train(plain, reference, 1, 1)
    for p, q in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(p, q)
    with pytest.raises(UserError, match="LBFGS"):
        wrap(net(), local=torch.optim.LBFGS)


@pytest.mark.parametrize(
    "make",
    [
        lambda o: torch.optim.lr_scheduler.StepLR(o, 2),
        lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 5),
        lambda o: torch.optim.lr_scheduler.OneCycleLR(o, 0.1, total_steps=10),
        lambda o: torch.optim.lr_scheduler.ReduceLROnPlateau(o, patience=0),
    ],
    ids=["step", "cosine", "one-cycle", "plateau"],
)
@pytest.mark.filterwarnings("error")
def test_schedulers_also_after_loading(make) -> None:
    model, plain = net(), net()
    optimizer, reference = wrap(model), LOCALS["nesterov"](plain.parameters())
    one, other = make(optimizer), make(reference)
    for step in range(1, 7):
        train(model, optimizer, step, step)
        train(plain, reference, step, step)
        for scheduler in (one, other):
            plateau = isinstance(scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau)
            scheduler.step(1.0) if plateau else scheduler.step()
        if step == 3:
            optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        assert optimizer.param_groups[0]["lr"] == reference.param_groups[0]["lr"]
    assert optimizer.param_groups[0]["lr"] != 0.1


@pytest.mark.parametrize("rule", RULES)
def test_state_dict_in_the_middle_of_a_run(rule: str, tmp_path) -> None:
    model = net()
    optimizer = wrap(model, RULES[rule])
    train(model, optimizer, 1, 3)
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "checkpoint")
    train(model, optimizer, 4, 6)

    again = net(seed=5)
    resumed = wrap(again, RULES[rule])
    saved = torch.load(tmp_path / "checkpoint", weights_only=True)
    again.load_state_dict(saved["model"])
    resumed.load_state_dict(saved["optimizer"])
    train(again, resumed, 4, 6)
    assert resumed.steps == optimizer.steps == 6
    assert torch.equal(resumed.flat.data, optimizer.flat.data)


def test_state_is_keyed_by_parameter_name_and_strict() -> None:
    optimizer = wrap(net())
    state = optimizer.state_dict()
    assert set(state["algorithm"]) == {"x_hat", "mixed"}
    assert set(state["algorithm"]["x_hat"]) == {"0.weight", "0.bias", "2.weight", "2.bias"}
    with pytest.raises(UserError, match="AllReduce keeps"):
        wrap(net(), AllReduce).load_state_dict(state)
    with pytest.raises(UserError, match="other parameters"):
        wrap(nn.Linear(2, 2)).load_state_dict(state)


def test_several_groups_keep_their_own_learning_rates() -> None:
    model = net()
    groups = [{"params": model[0].parameters(), "lr": 0.5}, {"params": model[2].parameters(), "lr": 0.0}]
    optimizer = DistributedOptimizer(torch.optim.SGD(groups, lr=0.1), model, DPSGD(), alone())
    before = [p.detach().clone() for p in model.parameters()]
    train(model, optimizer, 1, 1)
    moved = [not torch.equal(p, b) for p, b in zip(model.parameters(), before, strict=True)]
    assert moved == [True, True, False, False]


@pytest.mark.parametrize("rule", RULES)
def test_bf16_models_train_and_remember_in_float32(rule: str) -> None:
    model = net().bfloat16()
    optimizer = wrap(model, RULES[rule])
    before = optimizer.flat.data.clone()
    train(model, optimizer, 1, 3)
    assert not torch.equal(optimizer.flat.data, before)
    assert all(b.dtype == torch.float32 for b in optimizer.algorithm.buffers())


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("rule", RULES)
def test_a_bad_gradient_is_reported_by_name(rule: str, value: float) -> None:
    model = net()
    optimizer = wrap(model, RULES[rule])
    train(model, optimizer, 1, 2)
    before = optimizer.flat.data.clone()
    loss_of(model, 0, 3).backward()
    model[2].bias.grad[1] = value
    with pytest.raises(
        FloatingPointError, match=r"rank 0, step 3: the gradient of parameter '2.bias' holds NaN or inf"
    ):
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

    for rule in RULES.values():
        model = Half()
        before = model.unused.weight.detach().clone()
        train(model, wrap(model, rule), 1, 3)
        assert torch.equal(model.unused.weight, before)
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
            train(plain, reference, step, step)
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


@pytest.mark.parametrize("rule", [AllReduce, DPSGD])
@pytest.mark.parametrize("compressor", [Sign, TopK])
def test_compressors_that_need_a_memory_are_refused_where_there_is_none(rule, compressor) -> None:
    with pytest.raises(UserError, match="keeps no memory of what"):
        rule(compressor())


@pytest.mark.parametrize("gamma", [0, -1, 1.5, float("nan")])
def test_gamma_out_of_range(gamma: float) -> None:
    with pytest.raises(UserError, match="gamma, the consensus step size"):
        CHOCO(Identity(), gamma)
