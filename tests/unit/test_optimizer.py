"""The wrapped optimizer keeps the habits of torch."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from mpidec import CHOCO, DGC, DPSGD, ECD, AllReduce, DistributedOptimizer, EFSignSGD, Identity, Sign, TopK, UserError
from mpidec.launcher import launched
from support.problems import alone, loss_of, net
from support.table import LOCALS, RULES, TABLE
from support.training import train, wrap

EXACT = [(name, local) for name, row in TABLE.items() if row.exact is not None for local in row.locals]


@pytest.mark.parametrize(("name", "local"), EXACT)
def test_one_rank_alone_takes_the_local_steps(name: str, local: str) -> None:
    """Every algorithm is valid at n = 1, and there, where nothing is lost, only the local optimizer moves the rank."""
    model, plain = net(), net()
    optimizer = wrap(model, lambda: TABLE[name].rule(**TABLE[name].exact), LOCALS[local])
    reference = LOCALS[local](plain.parameters())
    train(0, model, optimizer, 1, 6)
    train(0, plain, reference, 1, 6)
    for p, q in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(p, q)


def test_is_an_optimizer_whose_groups_and_state_are_the_local_ones() -> None:
    model = net()
    optimizer = wrap(model)
    assert isinstance(optimizer, torch.optim.Optimizer)
    assert optimizer.param_groups is optimizer.local.param_groups
    train(0, model, optimizer, 1, 1)
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
    train(0, plain, reference, 1, 1)
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
        train(0, model, optimizer, step, step)
        train(0, plain, reference, step, step)
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
    local = LOCALS[TABLE[rule].locals[0]]
    optimizer = wrap(model, RULES[rule], local)
    train(0, model, optimizer, 1, 3)
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "checkpoint")
    train(0, model, optimizer, 4, 6)

    again = net(seed=5)
    resumed = wrap(again, RULES[rule], local)
    saved = torch.load(tmp_path / "checkpoint", weights_only=True)
    again.load_state_dict(saved["model"])
    resumed.load_state_dict(saved["optimizer"])
    train(0, again, resumed, 4, 6)
    assert resumed.steps == optimizer.steps == 6
    assert torch.equal(resumed.flat.data, optimizer.flat.data)


def test_state_is_keyed_by_parameter_name_and_strict() -> None:
    optimizer = wrap(net())
    state = optimizer.state_dict()
    assert set(state["algorithm"]) == {"x_hat", "mixed"}
    assert set(state["algorithm"]["x_hat"]) == {"0.weight", "0.bias", "2.weight", "2.bias"}
    with pytest.raises(UserError, match="was saved by CHOCO, and cannot be taken up by AllReduce"):
        wrap(net(), AllReduce).load_state_dict(state)
    with pytest.raises(UserError, match=r"other parameters: '0.weight' has the shape \[5, 6\] there, and None here"):
        wrap(nn.Linear(2, 2)).load_state_dict(state)
    with pytest.raises(UserError, match="no state of a DistributedOptimizer"):
        optimizer.load_state_dict(optimizer.local.state_dict())


@pytest.mark.parametrize(
    ("saver", "loader", "complaint"),
    [
        (
            lambda: DGC(),
            lambda: DGC(momentum=0.9),
            r"by a DGC of other options: it holds \['v'\], here are \['momentum_",
        ),
        (lambda: ECD(), lambda: ECD(TopK(0.1)), r"it holds \['mixed'\], here are \['mixed', 'x_hat'\]"),
        (
            lambda: EFSignSGD(),
            lambda: EFSignSGD(residual="direction"),
            r"saved by EFSignSGD\(residual=parameters\), and cannot be taken up by EFSignSGD\(residual=direction\)",
        ),
    ],
)
def test_a_state_of_other_options_is_refused_with_nothing_loaded(saver, loader, complaint: str) -> None:
    saved, model = wrap(net(), saver, lambda p: torch.optim.SGD(p, lr=0.5)), net()
    optimizer = wrap(model, loader, LOCALS["sgd"])
    with pytest.raises(UserError, match=complaint):
        optimizer.load_state_dict(saved.state_dict())
    assert optimizer.param_groups[0]["lr"] == 0.1


def test_steps_of_an_epoch_are_counted_from_1() -> None:
    with pytest.raises(UserError, match="steps_per_epoch is a number of steps, 1 or more: got 0"):
        wrap(net(), steps_per_epoch=0)


def test_copies_and_doubles_are_refused() -> None:
    optimizer = wrap(net())
    with pytest.raises(UserError, match="cannot be copied or pickled"):
        copy.deepcopy(optimizer)
    with pytest.raises(UserError, match="distributed already"):
        DistributedOptimizer(optimizer, net(), CHOCO(), alone())
    with pytest.raises(UserError, match="already serves another optimizer"):
        DistributedOptimizer(LOCALS["sgd"](net().parameters()), net(), optimizer.algorithm, alone())
    with pytest.raises(UserError, match=r"a compressor such as mpidec.Sign\(\): got 'sign'"):
        CHOCO("sign")


def test_a_family_by_name() -> None:
    if launched() is None:
        model = net()
        optimizer = DistributedOptimizer(LOCALS["sgd"](model.parameters()), model, CHOCO(), "torus")
        assert optimizer.comm.topology.name == "torus"


def test_several_groups_keep_their_own_learning_rates() -> None:
    model = net()
    groups = [{"params": model[0].parameters(), "lr": 0.5}, {"params": model[2].parameters(), "lr": 0.0}]
    optimizer = DistributedOptimizer(torch.optim.SGD(groups, lr=0.1), model, DPSGD(), alone())
    before = [p.detach().clone() for p in model.parameters()]
    train(0, model, optimizer, 1, 1)
    moved = [not torch.equal(p, b) for p, b in zip(model.parameters(), before, strict=True)]
    assert moved == [True, True, False, False]


@pytest.mark.parametrize("rule", [AllReduce, DPSGD])
@pytest.mark.parametrize("compressor", [Sign, TopK])
def test_compressors_that_need_a_memory_are_refused_where_there_is_none(rule, compressor) -> None:
    with pytest.raises(UserError, match="keeps no memory of what"):
        rule(compressor())


@pytest.mark.parametrize("gamma", [0, -1, 1.5, float("nan")])
def test_gamma_out_of_range(gamma: float) -> None:
    with pytest.raises(UserError, match="gamma, the consensus step size"):
        CHOCO(Identity(), gamma)
