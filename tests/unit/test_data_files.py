"""Data sets from files: LIBSVM, text, and what holds for all."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
import torch
from sklearn.datasets import dump_svmlight_file

from mpidec import UserError
from mpidec.train import data
from mpidec.train.data import libsvm
from mpidec.train.data.source import Source
from mpidec.transport.solo import Solo

FEATURES = torch.arange(30.0).view(10, 3) / 7
VALUES = torch.tensor([-1.0, 4, 2] * 3 + [2])


def load(name: str, **options) -> data.Dataset:
    return data.load(Source(name, **options), Solo())


def refused(sentence: str, name: str, **options) -> None:
    with pytest.raises(UserError, match=re.escape(sentence)) as refusal:
        load(name, **options)
    assert "\n" not in str(refusal.value)


def write(path: Path, features=FEATURES, values=VALUES) -> str:
    dump_svmlight_file(features.numpy(), values.numpy(), str(path), zero_based=False)
    return f"libsvm:{path}"


def test_a_libsvm_file_holds_out_a_fifth(tmp_path: Path) -> None:
    loaded = load(write(tmp_path / "small"))
    assert (len(loaded.train), len(loaded.test), loaded.sample, loaded.classes) == (8, 2, (3,), 3)
    rows = [tuple(row) for split in (loaded.train, loaded.test) for row in split.inputs.tolist()]
    assert sorted(rows) == sorted(tuple(row) for row in FEATURES.tolist())
    for split in (loaded.train, loaded.test):
        for row, label in zip(split.inputs, split.labels, strict=True):
            value = VALUES[(row == FEATURES).all(1)].item()
            assert [-1, 2, 4][label] == value, "labels are numbered in their order"
    again = load(f"libsvm:{tmp_path / 'small'}")
    assert torch.equal(again.test.inputs, loaded.test.inputs)


def test_a_file_of_test_samples_is_taken(tmp_path: Path) -> None:
    name = write(tmp_path / "a")
    write(tmp_path / "a.t", torch.ones(2, 5), torch.tensor([4.0, -1.0]))
    loaded = load(name)
    assert (len(loaded.train), len(loaded.test), loaded.sample) == (10, 2, (5,))
    assert torch.equal(loaded.train.inputs, torch.nn.functional.pad(FEATURES, (0, 2)))
    assert loaded.test.labels.tolist() == [2, 0]


def test_files_that_are_no_libsvm_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refused(f"--data libsvm:{tmp_path}/none: there is no such file", f"libsvm:{tmp_path}/none")
    (tmp_path / "words").write_text("these are words\n")
    refused(
        "words cannot be read as a LIBSVM file, lines of LABEL INDEX:VALUE ..: could not", f"libsvm:{tmp_path}/words"
    )
    (tmp_path / "empty").write_text("")
    refused("empty holds no samples", f"libsvm:{tmp_path}/empty")
    (tmp_path / "bare").write_text("1\n2\n")
    refused("bare holds no features", f"libsvm:{tmp_path}/bare")
    (tmp_path / "nan").write_text("1 1:nan\n2 1:3\n")
    refused("nan holds NaN or infinity", f"libsvm:{tmp_path}/nan")
    (tmp_path / "huge").write_text("1 1:1e300\n2 1:3\n" * 5)
    refused("samples of libsvm:" + f"{tmp_path}/huge hold NaN or infinity", f"libsvm:{tmp_path}/huge")
    refused("one class only", write(tmp_path / "one", values=torch.ones(10)))
    refused("no test samples", write(tmp_path / "few", FEATURES[:4], VALUES[:4]))
    name = write(tmp_path / "b")
    write(tmp_path / "b.t", values=VALUES + 1)
    refused(f"{tmp_path}/b.t has the label 0, which no sample of {tmp_path}/b has", name)
    monkeypatch.setattr(libsvm, "LARGEST", 100)
    refused("has 3 features, which take 0 GiB as dense numbers", write(tmp_path / "c"))


def text(tmp_path: Path, length: int) -> str:
    (tmp_path / "text").write_bytes(bytes(k % 256 for k in range(length)))
    return f"text:{tmp_path / 'text'}"


def test_text_is_told_byte_by_byte(tmp_path: Path) -> None:
    loaded = load(text(tmp_path, 1000), sequence_length=8)
    assert (loaded.sample, loaded.classes, loaded.tokens) == ((8,), 256, True)
    assert (len(loaded.train), len(loaded.test)) == (899 // 8, 99 // 8)
    inputs, labels = loaded.train.batch(torch.arange(len(loaded.train)))
    assert (inputs.dtype, labels.dtype) == (torch.int64, torch.int64)
    assert inputs.flatten().tolist() == [k % 256 for k in range(896)]
    assert labels.flatten().tolist() == [k % 256 for k in range(1, 897)]
    inputs, labels = loaded.test.batch(torch.tensor([0]))
    assert inputs[0].tolist() == [k % 256 for k in range(900, 908)]
    assert labels[0].tolist() == [k % 256 for k in range(901, 909)]


def test_the_last_byte_of_text_is_a_label_alone(tmp_path: Path) -> None:
    loaded = load(text(tmp_path, 960), sequence_length=8)
    assert (len(loaded.train), len(loaded.test)) == (864 // 8 - 1, 96 // 8 - 1), "the last sample lacks its last label"


def test_text_that_is_too_short_or_absent_is_refused(tmp_path: Path) -> None:
    assert len(load(text(tmp_path, 90), sequence_length=8).test) == 1
    refused("has 89 bytes, of which a tenth is held out: samples of --sequence-length 8 need 90 at least",
            text(tmp_path, 89), sequence_length=8)  # fmt: skip
    refused(f"--data text:{tmp_path}/none cannot be read: no such file or directory", f"text:{tmp_path}/none")
    refused("cannot be read: is a directory", f"text:{tmp_path}")
    if os.getuid() != 0:
        (tmp_path / "text").chmod(0)
        refused("cannot be read: permission denied", f"text:{tmp_path}/text")
