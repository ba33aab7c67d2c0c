"""All parameters as one vector."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from mpidec import FlatBuffer, UserError
from support.problems import net


def test_parameters_are_views_in_the_order_of_their_names() -> None:
    model = net()
    before = torch.cat([p.detach().flatten() for p in model.parameters()])
    flat = FlatBuffer(model)
    assert torch.equal(flat.data, before)
    assert [s.name for s in flat.segments] == ["0.weight", "0.bias", "2.weight", "2.bias"]
    assert flat.segments[2].place == slice(35, 50)
    assert flat.segments[2].shape == (3, 5)
    flat.data.zero_()
    assert not any(p.any() for p in model.parameters())


def test_strided_scalar_and_empty_parameters() -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.transposed = nn.Parameter(torch.arange(6.0).view(2, 3).T)
            self.scalar = nn.Parameter(torch.tensor(7.0))
            self.empty = nn.Parameter(torch.empty(0, 4))
            self.image = nn.Parameter(torch.arange(16.0).view(1, 2, 2, 4).to(memory_format=torch.channels_last))

    model = Odd()
    values = {name: p.detach().clone() for name, p in model.named_parameters()}
    flat = FlatBuffer(model)
    for name, p in model.named_parameters():
        assert torch.equal(p, values[name])
    assert flat.sizes == [6, 1, 0, 16]
    assert flat.data[:6].tolist() == [0, 3, 1, 4, 2, 5]


def test_frozen_parameters_are_left_out_and_tied_ones_stand_once() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.outer = nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)
            self.outer.weight = self.inner.weight
            self.frozen = nn.Linear(4, 4).requires_grad_(False)

    model = Tied()
    flat = FlatBuffer(model)
    assert flat.data.numel() == 16
    flat.data.fill_(3.0)
    assert model.outer.weight.data_ptr() == model.inner.weight.data_ptr() == flat.data.data_ptr()
    assert (model.outer.weight == 3).all()


def test_gradients_fresh_replaced_sparse_and_missing() -> None:
    model = net()
    flat = FlatBuffer(model)
    weight, bias, weight2, bias2 = model.parameters()
    weight.grad, bias.grad = torch.ones(5, 6), None
    weight2.grad, bias2.grad = torch.ones(3, 5).to_sparse(), torch.full((3,), 2.0)
    flat.grad.fill_(9.0)
    used = flat.collect_grad()
    assert used.tolist() == [True, False, True, True]
    assert flat.grad.tolist() == [1.0] * 30 + [0.0] * 5 + [1.0] * 15 + [2.0] * 3
    flat.bind_grad(used)
    assert bias.grad is None
    assert weight.grad is not None
    assert weight.grad.data_ptr() == flat.grad.data_ptr()


def test_replaced_data_is_taken_in_and_bound_again() -> None:
    model = net()
    flat = FlatBuffer(model)
    bias = model[0].bias
    bias.data = torch.full((5,), 4.0)
    flat.collect_data()
    assert flat.data[30:35].tolist() == [4.0] * 5
    flat.data.zero_()
    assert not bias.any()


def test_a_moved_model_is_refused_by_name() -> None:
    model = net()
    flat = FlatBuffer(model)
    model.double()
    with pytest.raises(UserError, match=r"parameter '0.weight' has moved to torch.float64"):
        flat.collect_data()


def test_split_and_join_are_inverse() -> None:
    flat = FlatBuffer(net())
    original = flat.data.clone()
    named = flat.split(flat.data)
    assert named["2.bias"].shape == (3,)
    flat.data.zero_()
    flat.join(named, flat.data)
    assert torch.equal(flat.data, original)


def test_groups() -> None:
    model = net()
    groups = [{"params": [model[2].weight]}, {"params": [model[0].weight]}]
    flat = FlatBuffer(model, groups)
    assert [(s.name, s.group) for s in flat.segments] == [("0.weight", 1), ("2.weight", 0)]
    with pytest.raises(UserError, match="is not the model's"):
        FlatBuffer(model, [{"params": [nn.Parameter(torch.ones(3))]}])


def test_what_does_not_fit_is_refused_by_name() -> None:
    mixed = net()
    mixed[2].double()
    with pytest.raises(UserError, match=r"'2.weight' is torch.float64 on cpu, but '0.weight' is torch.float32"):
        FlatBuffer(mixed)
    lazy = nn.Sequential(nn.LazyLinear(3))
    with pytest.raises(UserError, match=r"'0.weight' has no shape yet"):
        FlatBuffer(lazy)
    with pytest.raises(UserError, match="no trainable parameter"):
        FlatBuffer(nn.Sequential(nn.ReLU()))
    with pytest.raises(UserError, match=r"'weight' is torch.complex64: only floating-point"):
        FlatBuffer(nn.Linear(2, 2, bias=False, dtype=torch.complex64))
