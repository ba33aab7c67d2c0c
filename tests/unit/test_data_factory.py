"""Data of a user's own: what a factory may return, and a sentence for everything else."""

from __future__ import annotations

import multiprocessing
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from mpidec import UserError
from mpidec.train import data
from mpidec.train.data.dataset import Dataset, Split
from mpidec.train.data.lazy import LazySplit
from mpidec.train.data.source import Source
from mpidec.transport.solo import Solo
from support import data as own
from support.jobs import ROOT


def load(name: str, **options: Any) -> Dataset:
    return data.load(Source(f"support.data:{name}", **options), Solo())


def returned(monkeypatch: pytest.MonkeyPatch, made: Any) -> Dataset:
    monkeypatch.setattr(own, "made", lambda: made, raising=False)
    return load("made")


def test_tensors_are_held_in_memory() -> None:
    loaded = load("in_memory")
    assert isinstance(loaded.train, Split)
    assert torch.equal(loaded.train.inputs, own.tensors().tensors[0])
    assert loaded.test.labels.tolist() == [0, 1, 2, 0, 1, 2]
    assert (loaded.sample, loaded.classes) == ((2,), 3)
    assert load("own_dataset").classes == 4


def test_parts_of_tensors_are_in_memory_too_and_drawn_alike() -> None:
    one, two = load("halves"), load("halves")
    assert isinstance(one.train, Split)
    assert (len(one.train), len(one.test)) == (15, 5)
    assert torch.equal(one.train.inputs, two.train.inputs)
    assert sorted(torch.cat([one.train.inputs, one.test.inputs])[:, 0].tolist()) == list(range(0, 40, 2))


@pytest.mark.parametrize("workers", [0, 1])
def test_other_samples_are_loaded_batch_by_batch(workers: int) -> None:
    before = len(multiprocessing.active_children())
    loaded = load("lazy", workers=workers)
    assert isinstance(loaded.train, LazySplit)
    assert loaded.train.labels.tolist() == [0, 1, 2] * 4
    ((inputs, labels),) = loaded.test.batches([torch.tensor([2])])
    assert len(multiprocessing.active_children()) == before + workers
    assert inputs.tolist() == [[102.0] * 3]
    assert labels.tolist() == [0]
    assert (loaded.sample, loaded.classes) == ((3,), 3)


def test_parts_of_lazy_samples_know_their_labels() -> None:
    loaded = load("lazy_halves")
    for split in (loaded.train, loaded.test):
        ((_, labels),) = split.batches([torch.arange(len(split))])
        assert torch.equal(labels, split.labels)
    assert loaded.classes == 3


@pytest.mark.parametrize("name", ["unlabelled", "unlabelled_halves"])
def test_the_names_of_classes_do_without_labels(name: str) -> None:
    loaded = load(name)
    assert loaded.train.labels is None
    assert loaded.classes == 3


def test_one_class_is_refused_where_labels_are_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="has one class only, in which there is nothing to learn"):
        returned(monkeypatch, (Single(), Single()))


class Single(own.Pairs):
    classes = 1

    def __init__(self) -> None:
        super().__init__(1)


def test_half_in_memory_is_loaded_batch_by_batch() -> None:
    loaded = load("one_of_each")
    assert isinstance(loaded.train, LazySplit)
    assert isinstance(loaded.test, LazySplit)
    assert torch.equal(loaded.train.labels, own.tensors().tensors[1])


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("support.nothing:x", "there is no module support.nothing; it must be installed, on PYTHONPATH, or in the wor"),
        ("nothing.support:x", "there is no module nothing"),
        ("support.data:nothing", "support.data has no attribute nothing"),
        ("support.data:NUMBER", "it is an int, and must be a function"),
        ("support.data:raising", "raises KeyError: 'no\\nway', in "),
        ("support.data:tensors", "returns TensorDataset: it must return a pair"),
        ("support.data:leaving", "raises SystemExit: 0, in "),
        ("support.data:net", "raises TypeError: net() missing 2 required positional arguments"),
    ],
)
def test_factories_that_give_nothing_are_refused(name: str, sentence: str) -> None:
    with pytest.raises(UserError, match="^" + re.escape(f"--data {name}")) as refusal:
        data.load(Source(name), Solo())
    assert sentence in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_modules_that_cannot_be_imported_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_data.py").write_text("import missing_library\n")
    (tmp_path / "wrong_data.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    for name, reason in (
        ("broken_data", "ModuleNotFoundError: No module named 'missing_library'"),
        ("wrong_data", "ZeroDivisionError: division by zero"),
    ):
        with pytest.raises(UserError) as refusal:
            data.load(Source(f"{name}:load"), Solo())
        assert str(refusal.value) == f"--data {name}:load: the module cannot be imported ({reason})"


TRIPLE = (own.tensors(), own.tensors(), own.tensors())
EMPTY = own.changed(lambda inputs: inputs[:0], lambda labels: labels[:0])


def infinite(inputs: torch.Tensor) -> torch.Tensor:
    inputs[3, 1] = float("nan")
    return inputs


@pytest.mark.parametrize(
    ("made", "sentence"),
    [
        (None, "returns NoneType: it must return a pair (train, test)"),
        (TRIPLE, "returns tuple of 3: it must return a pair"),
        ((own.tensors(), own.Stream()), "returns a pair with Stream: both must be map-style"),
        ((own.tensors(), 3), "returns a pair with int"),
        ((torch.utils.data.TensorDataset(torch.zeros(2)), own.tensors()), "a TensorDataset of 1 tensors: inputs and l"),
        ((EMPTY, own.tensors()), "has no training samples"),
        ((own.tensors(), EMPTY), "has no test samples"),
        ((own.Numbers(0), own.Numbers(3)), "has no training samples"),
        ((own.Numbers(3), own.Numbers(0)), "has no test samples"),
        ((own.changed(labels=lambda labels: labels * 0), own.tensors()), "has one class only"),
        ((own.changed(labels=lambda labels: labels * 0 + 3), own.tensors()), "has one class only"),
        ((own.Numbers(5, classes=1), own.Numbers(3, classes=1)), "has one class only"),
        ((own.changed(labels=lambda labels: labels.float()), own.tensors()), "dtype torch.float32: they must be int64"),
        (
            (own.tensors(), own.changed(labels=lambda labels: labels > 1)),
            "the test samples of support.data:made have l",
        ),
        ((own.changed(labels=lambda labels: labels - 1), own.tensors()), "labels from -1 to 1, but the 2 classes are"),
        ((own.tensors(), own.tensors(classes=4)), "the test samples of support.data:made have labels from 0 to 3, but"),
        ((own.Numbers(6), own.Numbers(6, classes=4)), "have labels from 0 to 3, but the 3 classes are numbered 0 .. 2"),
        ((own.changed(infinite), own.tensors()), "the training samples of support.data:made hold NaN or infinity"),
        ((own.tensors(), own.changed(infinite)), "the test samples of support.data:made hold NaN or infinity"),
        ((own.tensors(), own.changed(lambda inputs: inputs[:, :1])), "of shape (2,) and test samples of shape (1,)"),
        ((own.tensors(), own.changed(lambda inputs: inputs.long())), "they must be alike, in their dtype too"),
        ((own.changed(lambda inputs: inputs[:, 0]), own.tensors()), "inputs of shape (12,): it must be (samples, ...)"),
        ((own.changed(lambda inputs: inputs > 1), own.tensors()), "are torch.bool: take floats, uint8"),
        ((own.Numbers(6), own.Pairs(6)), "training samples of shape (3,) and test samples of shape (2,)"),
        (([(torch.zeros(2), 0)], [(torch.zeros(2), 0)]), "does not tell its number of classes: give its training sam"),
    ],
)
def test_what_cannot_be_learnt_from_is_refused(monkeypatch: pytest.MonkeyPatch, made: Any, sentence: str) -> None:
    with pytest.raises(UserError) as refusal:
        returned(monkeypatch, made)
    assert sentence in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_inputs_without_labels_are_refused() -> None:
    from mpidec.train.data.checks import checked

    whole = Split(*own.tensors().tensors)
    with pytest.raises(UserError, match="the training samples of x are 12 inputs with 11 labels"):
        checked(Dataset(Split(whole.inputs, whole.labels[1:]), whole, 3), "x")


def test_numbers_far_beyond_the_samples_are_no_classes() -> None:
    from mpidec.train.data.checks import checked

    inputs, labels = own.tensors().tensors
    labels = labels.clone()
    labels[-1] = 10**12
    split = Split(inputs, labels)
    with pytest.raises(UserError, match=r"has labels up to 1,000,000,000,000 on 12 samples, .*: number the classes"):
        checked(Dataset(split, split, 10**12 + 1), "x")


@pytest.mark.parametrize("targets", [[0, 1], [0.5] * 12, "words", [[0]] * 12])
def test_odd_targets_are_refused(monkeypatch: pytest.MonkeyPatch, targets: Any) -> None:
    odd = own.Numbers(12)
    odd.targets = targets
    with pytest.raises(
        UserError, match=r"targets of --data support.data:made must be 12 integers, one for each sample"
    ):
        returned(monkeypatch, (odd, own.Numbers(6)))


@pytest.mark.parametrize("flags", [[], ["-P"]] if sys.version_info >= (3, 11) else [[]])
def test_a_module_in_the_working_directory_is_found(tmp_path: Path, flags: list[str]) -> None:
    (tmp_path / "my_own_data.py").write_text("from support.data import in_memory\n")
    program = (
        "from mpidec.train import data; from mpidec.train.data.source import Source\n"
        "from mpidec.transport.solo import Solo\n"
        "print(len(data.load(Source('my_own_data:in_memory'), Solo()).train))"
    )
    paths = {"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"}
    done = subprocess.run(
        [sys.executable, *flags, "-c", program], cwd=tmp_path, env=paths, capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == "12", done.stderr
