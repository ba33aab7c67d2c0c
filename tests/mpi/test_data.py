"""Data sets on several ranks: read once, the same everywhere, loaded by workers beside MPI, refused in one sentence."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from mpidec import FlatBuffer, UserError, World
from mpidec.train import data
from mpidec.train.data.dataset import Split
from mpidec.train.data.lazy import LazySplit
from mpidec.train.data.source import Source
from mpidec.train.evaluate import evaluate
from mpidec.train.names import DATA
from support import data as own
from support.images import TRAIN, write_cifar10
from support.torchvision import torchvision_or_skip

pytestmark = pytest.mark.mpi


def everywhere(world: World, value: object) -> bool:
    """Whether all ranks have the same."""
    return len(set(world.transport.all_gather_objects(repr(value)))) == 1


@pytest.fixture
def shared(world: World, tmp_path: Path) -> Path:
    """Rank 0's folder, on every rank."""
    path: Path = world.transport.broadcast_object(tmp_path)
    return path


def test_rank_0_reads_images_for_all(world: World, tmp_path: Path) -> None:
    """The others have no files."""
    torchvision_or_skip()
    if world.rank == 0:
        write_cifar10(tmp_path)
    loaded = data.load(Source("cifar10", tmp_path), world.transport)
    assert (len(loaded.train), loaded.sample, loaded.classes) == (TRAIN, (3, 32, 32), 10)
    assert isinstance(loaded.train, Split)
    assert loaded.train.inputs.dtype == torch.uint8
    inputs, labels = loaded.train.batch(torch.arange(TRAIN))
    assert abs(float(inputs.mean())) < 1e-5
    assert everywhere(world, (inputs.double().sum().item(), labels.tolist(), loaded.test.batch(torch.tensor([3]))))


@pytest.mark.parametrize(
    "name", ["digits", "support.data:in_memory", "support.data:halves", "support.data:own_dataset"]
)
def test_what_is_in_memory_is_the_same_everywhere(world: World, name: str) -> None:
    loaded = data.load(Source(name), world.transport)
    assert isinstance(loaded.train, Split)
    splits = [(split.inputs.tolist(), split.labels.tolist()) for split in (loaded.train, loaded.test)]
    assert everywhere(world, (splits, loaded.classes, loaded.sample))


def test_the_others_do_not_read(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    if world.rank > 0:
        monkeypatch.setitem(DATA, "digits", "support.data:raising")
    assert len(data.load(Source("digits"), world.transport).train) == 1438


def test_a_file_that_rank_0_cannot_read_is_one_sentence_everywhere(world: World, tmp_path: Path) -> None:
    with pytest.raises(UserError) as refusal:
        data.load(Source(f"text:{tmp_path}/{world.rank}"), world.transport)
    assert everywhere(world, str(refusal.value))
    assert str(refusal.value).endswith("/0 cannot be read: no such file or directory")


def test_text_is_cut_alike_everywhere(world: World, shared: Path) -> None:
    if world.rank == 0:
        (shared / "text").write_bytes(bytes(range(256)) * 4)
    loaded = data.load(Source(f"text:{shared}/text", sequence_length=16), world.transport)
    assert loaded.tokens
    assert everywhere(world, loaded.train.batch(torch.arange(len(loaded.train))))


@pytest.mark.parametrize("name", ["support.data:lazy", "support.data:lazy_halves"])
def test_what_is_not_in_memory_is_opened_everywhere(world: World, name: str) -> None:
    loaded = data.load(Source(name, workers=1), world.transport)
    assert isinstance(loaded.train, LazySplit)
    assert everywhere(world, list(loaded.train.batches(torch.arange(12).split(5))))


@pytest.mark.mpi(min_size=2)
def test_other_samples_on_another_rank_are_refused(world: World) -> None:
    if world.rank == 0:
        data.load(Source("support.data:grows"), world.transport)
    else:
        with pytest.raises(
            UserError, match=f"not the same on every rank: rank {world.rank} finds 1?[0-9]+ training sam"
        ):
            data.load(Source("support.data:grows"), world.transport)


@pytest.fixture(params=["fork", "spawn", "forkserver"])
def method(request: pytest.FixtureRequest) -> Iterator[str]:
    before = multiprocessing.get_start_method(allow_none=True)
    multiprocessing.set_start_method(request.param, force=True)
    yield request.param
    multiprocessing.set_start_method(before, force=True)


def test_workers_of_any_kind_beside_mpi(world: World, method: str) -> None:
    """While they load, the ranks exchange; and those that are started anew never import mpi4py."""
    split = LazySplit(own.Telling(40), None, "my data", 2, workers=1)
    seen = set()
    for inputs, labels in split.batches(torch.arange(40).split(10)):
        total = torch.ones(1000)
        world.transport.all_reduce(total)
        assert (total == world.size).all()
        seen.add(float(inputs[0, 0]))
        assert method == "fork" or not labels.any(), "fork copies what has been imported, and nobody calls it there"
    assert len(seen) == 1
    numbers = LazySplit(own.Numbers(12), None, "my data", 3, workers=1)
    assert torch.equal(next(numbers.batches([torch.tensor([4])]))[0], torch.full((1, 3), 4.0))


@pytest.mark.parametrize("workers", [0, 1])
def test_lazy_samples_are_judged_as_those_in_memory(world: World, workers: int) -> None:
    numbers = own.Numbers(13)
    whole = Split(torch.stack([numbers[k][0] for k in range(13)]), torch.tensor(numbers.targets))
    lazy = LazySplit(numbers, torch.tensor(numbers.targets), "my data", 3, workers)
    torch.manual_seed(world.rank)
    model = nn.Linear(3, 3)
    flat = FlatBuffer(model)
    cpu = torch.device("cpu")
    one, other = (evaluate(world.transport, model, flat, split.to(cpu)) for split in (whole, lazy))
    assert one == other
    assert sum(one.test_accuracy_local) > 0
    assert everywhere(world, one)
