"""The steps of one rank: passes added up, mixed precision, moved images, compiled models."""

from __future__ import annotations

import copy
import itertools
import random
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from mpidec import UserError
from mpidec.errors import NonFiniteError
from mpidec.train import build
from mpidec.train.config import Config
from mpidec.train.data.dataset import Dataset, Split
from mpidec.train.state import restore, set_random_states, snapshot
from mpidec.train.trainer import Trainer
from support.problems import alone

SAMPLES = 96


def images(alike: bool = False) -> Dataset:
    """Images with or without a bright first channel; ``alike`` ones differ in their labels alone."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(SAMPLES, 3, 8, 8, generator=generator)
    if alike:
        inputs = inputs[:1].expand(SAMPLES, -1, -1, -1)
    labels = (inputs[:, 0].mean((1, 2)) > 0).long()
    return Dataset(Split(inputs, labels), Split(inputs[:16], labels[:16]), 2)


class Watched(nn.Module):
    """A small network that keeps what it was shown, and what came out of its first layer."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last, self.drop = nn.Conv2d(3, 4, 3), nn.Linear(144, 2), nn.Dropout(dropout)
        self.shown: list[Tensor] = []
        self.made: list[torch.dtype] = []

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.first(inputs)
        if not torch.compiler.is_compiling():
            self.shown.append(inputs.detach().clone())
            self.made.append(hidden.dtype)
        return self.last(self.drop(hidden.relu().flatten(1)))


def trainer(dropout: float = 0.0, alike: bool = False, **options: Any) -> tuple[Trainer, Watched]:
    config, dataset = Config(**{"batch_size": 8, "epochs": 4, **options}), images(alike)
    model = Watched(dropout).to(build.dtype(config))
    return Trainer(config, dataset, model, alone(), build.shards(config, dataset, 1)), model


def trained(epochs: int = 2, **options: Any) -> tuple[Trainer, Watched]:
    one, model = trainer(**options)
    for epoch in range(1, epochs + 1):
        for _ in one.steps(epoch):
            pass
    return one, model


@pytest.mark.parametrize("clip", [None, 0.01])
def test_passes_are_added_up_as_one_batch(clip: float | None) -> None:
    whole, _ = trained(batch_size=16, clip_norm=clip, dtype="float64")
    parts, model = trained(batch_size=4, accumulate=4, clip_norm=clip, dtype="float64")
    assert whole.optimizer.steps == parts.optimizer.steps == 12
    assert {len(inputs) for inputs in model.shown} == {4}
    torch.testing.assert_close(whole.optimizer.flat.data, parts.optimizer.flat.data, rtol=0, atol=1e-6)
    assert whole.meter.state_dict()["losses"].tolist() == pytest.approx(parts.meter.state_dict()["losses"].tolist())


@pytest.mark.parametrize(("precision", "dtype"), [("bf16", torch.bfloat16), ("fp16", torch.float16)])
def test_mixed_precision_trains(precision: str, dtype: torch.dtype) -> None:
    one, model = trained(4, amp=precision, lr=0.05)
    assert set(model.made) == {dtype}
    assert one.optimizer.flat.data.dtype == torch.float32
    losses = one.meter.state_dict()["losses"]
    assert losses[-12:].mean() < 0.8 * losses[:12].mean()
    _, plain = trained(1)
    assert set(plain.made) == {torch.float32}


def test_augmentation_draws_anew_for_every_batch_and_the_same_again() -> None:
    _, plain = trained(1)
    _, moved = trained(2, augment=True)
    _, again = trained(2, augment=True)
    assert all(torch.equal(a, b) for a, b in zip(moved.shown, again.shown, strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(plain.shown, moved.shown, strict=False))
    late, model = trainer(augment=True)
    assert list(late.steps(1, first=9)) == [10, 11, 12]
    assert all(torch.equal(a, b) for a, b in zip(model.shown, moved.shown[9:12], strict=True)), "also from the middle"


def test_batches_of_one_image_are_moved_apart() -> None:
    _, model = trained(1, augment=True, alike=True)
    assert not any(torch.equal(a, b) for a, b in itertools.pairwise(model.shown))


def test_draws_and_scales_go_on_where_they_were() -> None:
    whole, _ = trainer(dropout=0.5, amp="fp16")
    for seed in (torch.manual_seed, np.random.seed, random.seed):
        seed(1)
    whole.scaler.load_state_dict({**whole.scaler.state_dict(), "scale": 512.0})
    for done in whole.steps(1):
        if done == 4:
            state = copy.deepcopy(snapshot(whole, 1, done))
            drawn = (torch.rand(3), np.random.rand(3), random.random())
            set_random_states(state["rng"])
    late, _ = trainer(dropout=0.5, amp="fp16")
    restore(late, state)
    assert late.scaler.get_scale() == 512
    again = (torch.rand(3), np.random.rand(3), random.random())
    assert torch.equal(drawn[0], again[0])
    assert drawn[1].tolist() == again[1].tolist()
    assert drawn[2] == again[2]
    set_random_states(state["rng"])
    assert list(late.steps(1, first=4))[-1] == 12
    assert torch.equal(late.optimizer.flat.data, whole.optimizer.flat.data)


def test_augmentation_is_for_images() -> None:
    config, flat = Config(augment=True), Split(torch.zeros(8, 5), torch.arange(8) % 2)
    dataset = Dataset(flat, flat, 2)
    with pytest.raises(UserError, match="samples have the shape"):
        Trainer(config, dataset, nn.Linear(5, 2), alone(), build.shards(config, dataset, 1))


@pytest.mark.parametrize("samples", [1, 4])
def test_a_model_that_fails_on_its_batches_is_refused_first(samples: int) -> None:
    one, model = trainer(batch_size=samples)
    model.last = nn.Sequential(nn.BatchNorm1d(144), nn.Linear(144, 2))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = torch.get_rng_state()
    if samples == 1:
        with pytest.raises(UserError, match=r"fails in training mode on a batch of 1 samples of shape \(3, 8, 8\)"):
            one.try_one_batch()
    else:
        one.try_one_batch()
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_buffers_outside_the_state_dict_go_on_too() -> None:
    whole, model = trainer()
    model.register_buffer("seen", torch.zeros(()), persistent=False)
    model.seen += 5
    state = copy.deepcopy(snapshot(whole, 1, 0))
    late, other = trainer()
    other.register_buffer("seen", torch.zeros(()), persistent=False)
    restore(late, state)
    assert other.seen == 5


def test_recomputed_statistics_draw_nothing_from_the_training() -> None:
    one, _ = trainer(batch_norm="recompute", dropout=0.5)
    states = torch.get_rng_state(), np.random.get_state()[1].tolist()
    one.evaluate(1)
    assert torch.equal(torch.get_rng_state(), states[0])
    assert np.random.get_state()[1].tolist() == states[1]


def test_a_loss_that_is_no_number_is_a_divergence() -> None:
    one, _ = trained(1)
    evaluation = one.evaluate(1)
    one.meter.add_loss(torch.tensor(float("nan")))
    with pytest.raises(NonFiniteError, match="the training loss of rank 0 in epoch 1 is NaN or infinity"):
        one.meter.close_epoch(1, evaluation)


@pytest.mark.parametrize("schedule", ["cosine", "onecycle"])
def test_the_last_rate_is_that_of_the_last_step(schedule: str) -> None:
    one, _ = trained(4, schedule=schedule)
    assert one.meter.rate == one.optimizer.param_groups[0]["lr"] > 0
    assert one.meter.rate < 0.001


def test_each_rate_of_the_schedule_takes_one_step() -> None:
    one, _ = trainer(schedule="cosine", epochs=1)
    rates = []
    for _ in one.steps(1):
        rates.append(one.meter.rate)
    assert rates[0] == 0.1
    assert rates == sorted(set(rates), reverse=True)


@pytest.mark.long
def test_a_compiled_model_trains_alike() -> None:
    plain, _ = trained(1)
    compiled, _ = trained(1, compile=True)
    torch.testing.assert_close(plain.optimizer.flat.data, compiled.optimizer.flat.data, rtol=1e-4, atol=1e-5)
