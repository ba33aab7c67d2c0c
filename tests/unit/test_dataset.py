"""Samples in memory and samples that are loaded batch by batch give the same batches."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import Tensor

from mpidec import UserError
from mpidec.train.data.dataset import Dataset, Normalize, Split
from mpidec.train.data.lazy import LazySplit
from support import data as own

CPU = torch.device("cpu")
ORDER = [torch.tensor(indices) for indices in ([3, 1], [0, 5], [5, 5])]


def images(samples: int = 20) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, (samples, 3, 4, 5), generator=generator, dtype=torch.uint8)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_images_stay_bytes_and_batches_are_normalised(dtype: torch.dtype) -> None:
    pixels = images()
    normalize = Normalize.of(pixels)
    split = Split(pixels, torch.arange(20), normalize).to(CPU, dtype)
    assert split.inputs.dtype == torch.uint8
    inputs, labels = split.batch(torch.arange(20))
    assert (inputs.dtype, labels.dtype) == (dtype, torch.int64)
    torch.testing.assert_close(inputs.mean((0, 2, 3)), torch.zeros(3, dtype=dtype), rtol=0, atol=1e-5)
    torch.testing.assert_close(inputs.var((0, 2, 3), correction=0), torch.ones(3, dtype=dtype), rtol=1e-5, atol=0)
    by_hand = (pixels[7].double() / 255 - torch.tensor(normalize.mean).view(3, 1, 1)) / torch.tensor(
        normalize.std, dtype=torch.float64
    ).view(3, 1, 1)
    torch.testing.assert_close(inputs[7].double(), by_hand, rtol=1e-4, atol=1e-5)
    ranks, _ = split.batch(torch.arange(6).view(2, 3))
    assert torch.equal(ranks.flatten(0, 1), inputs[:6]), "batches of all ranks at once"


def test_a_channel_without_contrast_stays_finite() -> None:
    inputs, _ = Split(black := torch.zeros(4, 1, 2, 2, dtype=torch.uint8), torch.arange(4), Normalize.of(black)).batch(
        torch.arange(4)
    )
    assert (inputs == 0).all()


def test_plain_images_are_scaled_floats_converted_and_tokens_kept() -> None:
    every = torch.arange(2)
    assert Split(torch.tensor([[0], [255]], dtype=torch.uint8), every).batch(every)[0].tolist() == [[0.0], [1.0]]
    floats = Split(torch.tensor([[0.5], [2.0]]), every).to(CPU, torch.float64)
    assert floats.inputs.dtype == torch.float64
    tokens = Split(torch.tensor([[3, 4], [300, 6]], dtype=torch.int16), every).to(CPU, torch.float64)
    assert tokens.tokens
    assert tokens.batch(every)[0].dtype == torch.int64
    assert tokens.batch(every)[0].tolist() == [[3, 4], [300, 6]]


def lazy(source=None, workers: int = 0, classes: int = 3) -> LazySplit:
    return LazySplit(source or own.Numbers(12), None, "my data", classes, workers)


@pytest.mark.parametrize("workers", [0, 2])
def test_lazy_batches_are_those_in_memory(workers: int) -> None:
    numbers = own.Numbers(12)
    whole = Split(torch.stack([numbers[k][0] for k in range(12)]), torch.tensor(numbers.targets))
    split = LazySplit(numbers, torch.tensor(numbers.targets), "my data", 3, workers).to(CPU, torch.float64)
    assert (len(split), split.sample, split.tokens) == (12, (3,), False)
    for _ in range(2):  # the workers serve every epoch
        batches = list(split.batches(iter(ORDER)))
        assert len(batches) == 3
        for (inputs, labels), (there, classes) in zip(batches, whole.batches(ORDER), strict=True):
            assert (inputs.dtype, labels.dtype) == (torch.float64, torch.int64)
            assert torch.equal(inputs, there.double())
            assert torch.equal(labels, classes)
    assert list(split.batches([])) == []
    next(split.batches(ORDER))  # and left in the middle
    assert len(list(split.batches(ORDER[:2]))) == 2


def test_a_worker_that_is_killed_is_told_in_a_sentence() -> None:
    with pytest.raises(UserError, match=r"a worker process that loads my data has ended \("):
        list(lazy(own.Dying(12), workers=1).batches(torch.arange(12).split(4)))


def test_workers_are_processes_that_stay() -> None:
    split = lazy(own.Telling(12), workers=1, classes=2)
    seen = {float(inputs[0, 0]) for _ in range(2) for inputs, _ in split.batches(ORDER)}
    assert len(seen) == 1
    assert seen != {float(next(lazy(own.Telling(12), classes=2).batches(ORDER))[0][0, 0])}


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_draws_of_a_batch_are_those_of_its_seed(workers: int) -> None:
    """With any number of workers, and from the middle of an epoch on."""
    reference = [inputs for inputs, _ in lazy(own.Noise(), 0, 2).batches(ORDER, [7, 8, 9])]
    split = lazy(own.Noise(), workers, 2)
    state = torch.get_rng_state(), np.random.get_state()[1].tolist()
    for first in (0, 1):
        batches = [inputs for inputs, _ in split.batches(ORDER[first:], iter([7, 8, 9][first:]))]
        assert all(torch.equal(one, other) for one, other in zip(batches, reference[first:], strict=True))
    assert not torch.equal(reference[2], next(split.batches(ORDER[2:], [10]))[0])
    assert torch.equal(state[0], torch.get_rng_state()), "what dropout draws does not change"
    assert state[1] == np.random.get_state()[1].tolist()


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        (own.Broken(12), "^sample 5 of my data cannot be loaded \\(OSError: the disk is gone\\)$"),
        (own.Stranger(12), "^sample 4 of my data has a label that is not in 0 .. 2, its classes$"),
    ],
)
def test_what_fails_in_a_worker_is_one_sentence(source, sentence: str, workers: int) -> None:
    with pytest.raises(UserError, match=sentence):
        list(lazy(source, workers).batches([torch.tensor([1, 4, 5])]))


@pytest.mark.parametrize(
    ("pairs", "sentence"),
    [
        (
            [("text", 1)],
            "must be pairs of an input tensor, of one shape, and an int label .TypeError: got tuple and Ten",
        ),
        ([torch.zeros(2)], "must be pairs"),
        ([(torch.zeros(2), 0.5)], "must be integers, one a sample: got torch.float64, shape ()"),
        ([(torch.zeros(2), torch.zeros(2).long())], r"must be integers, one a sample: got torch.int64, shape \(2,\)"),
    ],
)
def test_other_samples_are_refused_at_once(pairs, sentence: str) -> None:
    with pytest.raises(UserError, match=f"the (samples|labels) of my data {sentence}"):
        lazy(pairs)


def test_samples_of_two_shapes_are_refused() -> None:
    with pytest.raises(UserError, match="the samples of my data must be pairs of an input tensor, of one shape"):
        list(lazy([(torch.zeros(2), 0), (torch.zeros(3), 1)]).batches([torch.tensor([0, 1])]))


@pytest.fixture
def spawning() -> Iterator[None]:
    before = multiprocessing.get_start_method(allow_none=True)
    multiprocessing.set_start_method("spawn", force=True)
    yield
    multiprocessing.set_start_method(before, force=True)


@pytest.mark.usefixtures("spawning")
def test_what_cannot_be_pickled_is_refused() -> None:
    source = own.Numbers(12)
    source.transform = lambda one: one
    with pytest.raises(UserError, match=r"my data cannot be sent to worker processes .* or take --workers 0"):
        next(lazy(source, 1).batches(ORDER))


def test_a_data_set_has_the_shape_of_its_samples() -> None:
    data = Dataset(lazy(), lazy(), 3)
    assert (data.sample, data.tokens) == ((3,), False)
