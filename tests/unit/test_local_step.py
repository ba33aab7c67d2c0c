"""The local step: any optimizer of torch.optim, weight decay where it belongs, gradients clipped."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from mpidec import DGC, AllReduce, DistributedOptimizer, UserError, World, run_on_threads
from mpidec.train.config import Config
from mpidec.train.local import local_step, split
from mpidec.train.options.step import OPTIMIZERS
from support.problems import batch, loss_of, net
from support.training import network_of, wrap


class Blocks(nn.Module):
    """Weights under names that say nothing, and a bias that is named weight."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Embedding(5, 4)
        self.first = nn.Linear(4, 4)
        self.second = nn.LayerNorm((2, 2))
        self.third = nn.BatchNorm1d(4)
        self.fourth = nn.LSTM(4, 3)
        self.weight = nn.Parameter(torch.zeros(7))
        self.frozen = nn.Linear(2, 2).requires_grad_(False)


def test_weight_decay_spares_biases_and_normalisation_by_type() -> None:
    model = Blocks()
    weights, spared = split(model)
    names = {p: name for name, p in model.named_parameters()}
    assert [names[p] for p in weights] == ["bias.weight", "first.weight", "fourth.weight_ih_l0", "fourth.weight_hh_l0"]
    assert {names[p] for p in spared} == {
        "weight",
        "first.bias",
        "second.weight",
        "second.bias",
        "third.weight",
        "third.bias",
        "fourth.bias_ih_l0",
        "fourth.bias_hh_l0",
    }


def test_a_shared_parameter_is_decayed_once() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.LayerNorm((3, 3)))
    model[1].weight = model[0].weight
    weights, spared = split(model)
    assert [p is model[0].weight for p in weights] == [True]
    assert len(spared) == 2


def test_groups_have_their_own_decay() -> None:
    optimizer = local_step(Config(decay="weights", weight_decay=0.3, lr=0.2), net())
    assert [(len(g["params"]), g["weight_decay"], g["lr"]) for g in optimizer.param_groups] == [
        (2, 0.3, 0.2),
        (2, 0.0, 0.2),
    ]
    (only,) = local_step(Config(weight_decay=0.3), net()).param_groups
    assert (len(only["params"]), only["weight_decay"]) == (4, 0.3)


@pytest.mark.parametrize("name", [*OPTIMIZERS, "adamw", "Adafactor"])
def test_every_optimizer_by_name(name: str) -> None:
    config = Config(optimizer=name, weight_decay=None if name == "Rprop" else 0.02)
    optimizer = local_step(config, net())
    assert type(optimizer).__name__.lower() == name.lower()
    assert config.lr == (0.1 if name == "SGD" else 0.001)
    assert optimizer.param_groups[0]["lr"] == config.lr
    assert optimizer.param_groups[0].get("weight_decay", 0) == (0 if name == "Rprop" else 0.02), "it has none"
    assert optimizer.param_groups[0].get("momentum", 0) == (0.9 if name == "SGD" else 0)
    model = net()
    stepped = DistributedOptimizer(local_step(config, model), model, AllReduce(), wrap(net()).comm)
    before = stepped.flat.data.clone()
    loss_of(model, 0, 1).backward()
    stepped.step()
    assert not torch.equal(before, stepped.flat.data)


def test_options_of_an_optimizer() -> None:
    config = Config(optimizer="AdamW", optimizer_options="betas=(0.8, 0.9),eps=1e-6,amsgrad=True")
    (group,) = local_step(config, net()).param_groups
    assert (group["betas"], group["eps"], group["amsgrad"]) == ((0.8, 0.9), 1e-6, True)
    (group,) = local_step(Config(optimizer="RMSprop", momentum=0.4), net()).param_groups
    assert group["momentum"] == 0.4


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"optimizer": "Adamm"}, "unknown optimizer 'Adamm': known are "),
        ({"optimizer": "LBFGS"}, "unknown optimizer 'LBFGS': known are "),
        ({"optimizer": "Adam", "momentum": 0.5}, "--momentum is not an option of Adam: set it to 0"),
        ({"optimizer": "Rprop", "weight_decay": 0.1}, "--weight-decay is not an option of Rprop: set it to 0"),
        ({"optimizer_options": "differentiable=True"}, "differentiable has no place in a distributed step"),
        ({"optimizer_options": "lr=0.5"}, "lr is the option --lr: leave it out of --optimizer-options"),
        ({"optimizer_options": "beta=3"}, "SGD has no option 'beta': it takes lr, momentum"),
        ({"optimizer": "Adam", "optimizer_options": "betas=7"}, "Adam does not take --optimizer-options betas=7: "),
        (
            {"optimizer_options": "dampening=0.1"},
            "SGD does not take --optimizer-options dampening=0.1: Nesterov momentum requires",
        ),
    ],
    ids=str,
)
def test_wrong_optimizers(options: dict[str, object], sentence: str) -> None:
    with pytest.raises(UserError) as refusal:
        local_step(Config(**options), net())
    assert str(refusal.value).startswith(sentence)


@pytest.mark.parametrize("accumulate", [1, 2])
def test_clipping_in_central_mode_is_that_of_one_process(accumulate: int) -> None:
    ranks, clip = 3, 0.05

    def work(world: World) -> torch.Tensor:
        model = net().double()
        rule = AllReduce()
        local = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
        optimizer = DistributedOptimizer(local, model, rule, network_of(world, rule), clip_norm=clip)
        for step in range(1, 6):
            optimizer.zero_grad()
            for part in range(accumulate):
                (loss_of(model, world.rank, 10 * step + part) / accumulate).backward()
            optimizer.step()
        return optimizer.flat.data

    plain = net().double()
    reference = torch.optim.SGD(plain.parameters(), lr=0.5, momentum=0.9)
    for step in range(1, 6):
        reference.zero_grad()
        pairs = [batch(rank, 10 * step + part) for rank in range(ranks) for part in range(accumulate)]
        inputs, labels = (torch.cat(one) for one in zip(*pairs, strict=True))
        nn.functional.cross_entropy(plain(inputs.double()).float(), labels).backward()
        assert nn.utils.clip_grad_norm_(plain.parameters(), clip) > clip
        reference.step()
    expected = nn.utils.parameters_to_vector(plain.parameters())
    for x in run_on_threads(work, ranks):
        torch.testing.assert_close(x, expected.detach(), rtol=0, atol=1e-6)


def test_a_small_gradient_is_not_clipped() -> None:
    models = [net(), net()]
    for model, clip in zip(models, (None, 1e6), strict=True):
        optimizer = wrap(model, clip_norm=clip)
        loss_of(model, 0, 1).backward()
        optimizer.step()
    assert torch.equal(models[0][0].weight, models[1][0].weight)


def test_clipping_needs_a_norm_and_a_gradient() -> None:
    with pytest.raises(UserError, match="clip_norm, which limits the norm of the whole gradient, is above 0"):
        wrap(net(), clip_norm=0.0)
    with pytest.raises(UserError, match="DGC makes the direction of the step itself, and leaves no gradient to clip"):
        wrap(net(), DGC, lambda p: torch.optim.SGD(p, lr=0.1), clip_norm=1.0)
