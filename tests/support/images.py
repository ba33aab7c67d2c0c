"""Image sets in their true formats, written small."""

from __future__ import annotations

import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mpidec import UserError
from mpidec.train import data
from mpidec.train.data.dataset import Dataset
from mpidec.train.data.source import Source
from mpidec.transport.solo import Solo

TRAIN, TEST = 20, 7
LABELS = {number: (np.arange(number) * 7 % 10).astype(np.int64) for number in (TRAIN, TEST)}


def pixels(number: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(number).integers(0, 256, (number, *shape), dtype=np.uint8)


def write_mnist(root: Path, folder: str = "MNIST") -> None:
    raw = root / folder / "raw"
    raw.mkdir(parents=True)
    for part, number in (("train", TRAIN), ("t10k", TEST)):
        images = pixels(number, 28, 28)
        header = b"".join(value.to_bytes(4, "big") for value in (2051, number, 28, 28))
        (raw / f"{part}-images-idx3-ubyte").write_bytes(header + images.tobytes())
        header = b"".join(value.to_bytes(4, "big") for value in (2049, number))
        (raw / f"{part}-labels-idx1-ubyte").write_bytes(header + LABELS[number].astype(np.uint8).tobytes())


def write_cifar10(root: Path) -> None:
    folder = root / "cifar-10-batches-py"
    folder.mkdir(parents=True)
    images, labels = pixels(TRAIN, 3 * 32 * 32), LABELS[TRAIN].tolist()
    for part in range(5):
        mine = slice(4 * part, 4 * part + 4)
        (folder / f"data_batch_{part + 1}").write_bytes(pickle.dumps({"data": images[mine], "labels": labels[mine]}))
    batch = {"data": pixels(TEST, 3 * 32 * 32), "labels": LABELS[TEST].tolist()}
    (folder / "test_batch").write_bytes(pickle.dumps(batch))
    (folder / "batches.meta").write_bytes(pickle.dumps({"label_names": list("abcdefghij")}))


def write_cifar100(root: Path) -> None:
    folder = root / "cifar-100-python"
    folder.mkdir(parents=True)
    for name, number in (("train", TRAIN), ("test", TEST)):
        batch = {"data": pixels(number, 3 * 32 * 32), "fine_labels": (LABELS[number] * 11).tolist()}
        (folder / name).write_bytes(pickle.dumps(batch))
    (folder / "meta").write_bytes(pickle.dumps({"fine_label_names": [str(k) for k in range(100)]}))


def write_svhn(root: Path) -> None:
    from scipy.io import savemat

    root.mkdir(exist_ok=True)
    for name, number in (("train", TRAIN), ("test", TEST)):
        images = pixels(number, 3, 32, 32).transpose(2, 3, 1, 0)
        labels = np.where(LABELS[number] == 0, 10, LABELS[number]).reshape(-1, 1).astype(np.uint8)
        savemat(root / f"{name}_32x32.mat", {"X": images, "y": labels})


WRITERS = {
    "mnist": (write_mnist, "MNIST/raw/train-images-idx3-ubyte", "MNIST/raw/t10k-labels-idx1-ubyte"),
    "fashion-mnist": (
        lambda root: write_mnist(root, "FashionMNIST"),
        "FashionMNIST/raw/train-images-idx3-ubyte",
        "FashionMNIST/raw/t10k-images-idx3-ubyte",
    ),
    "cifar10": (write_cifar10, "cifar-10-batches-py/data_batch_1", "cifar-10-batches-py/test_batch"),
    "cifar100": (write_cifar100, "cifar-100-python/train", "cifar-100-python/meta"),
    "svhn": (write_svhn, "train_32x32.mat", "test_32x32.mat"),
}


def write_folder(root: Path, part: str, classes: str = "abc", images: int = 4) -> None:
    from PIL import Image

    for number, name in enumerate(classes):
        (root / part / name).mkdir(parents=True)
        for image in range(images):
            colour = (40 * number + 20, 10 * image, 200)
            mode, colour = ("L", colour[0]) if image == 3 else ("RGB", colour)
            Image.new(mode, (40 + image, 30), colour).save(root / part / name / f"{image}.png")


def load(name: str, root: Path | None, **options: Any) -> Dataset:
    """The data set ``name`` in the folder ``root``, by a rank alone."""
    return data.load(Source(name, root, **options), Solo())


def refused(sentence: str, name: str, root: Path | None, **options: Any) -> None:
    """It cannot be loaded, and one line says so."""
    with pytest.raises(UserError, match=re.escape(sentence)) as refusal:
        load(name, root, **options)
    assert "\n" not in str(refusal.value)
