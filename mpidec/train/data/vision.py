"""Image sets that fit into memory, read by torchvision: MNIST, Fashion-MNIST, CIFAR-10, CIFAR-100 and SVHN."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from mpidec.errors import UserError
from mpidec.train.data.dataset import Dataset, Normalize, Split
from mpidec.train.data.source import Source
from mpidec.train.foreign import told
from mpidec.train.vision import torchvision


class Kind(NamedTuple):
    """A class of torchvision, the number of its labels, and the files that it reads, in its directory."""

    name: str
    classes: int
    files: tuple[str, ...]


def _idx(folder: str) -> tuple[str, ...]:
    names = (f"{part}-{what}-ubyte" for part in ("train", "t10k") for what in ("images-idx3", "labels-idx1"))
    return tuple(f"{folder}/raw/{name}" for name in names)


KINDS = {
    "mnist": Kind("MNIST", 10, _idx("MNIST")),
    "fashion-mnist": Kind("FashionMNIST", 10, _idx("FashionMNIST")),
    "cifar10": Kind(
        "CIFAR10",
        10,
        tuple(
            f"cifar-10-batches-py/{name}"
            for name in (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch", "batches.meta")
        ),
    ),
    "cifar100": Kind("CIFAR100", 100, tuple(f"cifar-100-python/{name}" for name in ("train", "test", "meta"))),
    "svhn": Kind("SVHN", 10, ("train_32x32.mat", "test_32x32.mat")),
}


def load(source: Source) -> Dataset:
    """Images in uint8, shape ``(samples, channels, height, width)``, normalised to the training samples.

    Raises ``UserError`` where torchvision or the files are missing, cannot be downloaded, or cannot be read.
    """
    kind, root = KINDS[source.name], source.directory or Path("data")
    library = torchvision(f"--data {source.name}")
    missing = [name for name in kind.files if not (root / name).is_file()]
    if missing and not source.download:
        raise UserError(
            f"{source.name} is not in {root}, where {missing[0]} is missing: give its folder with --data-dir, or fetch "
            "it with --download"
        )
    reader = _reader(library, kind)
    if missing:
        try:
            for part in _parts(kind):
                reader(root, download=True, **part)
        except Exception as error:  # of the network, the disk, or an archive that is not the expected one
            raise UserError(f"{source.name} cannot be downloaded to {root} ({told(error)})") from error
    try:
        (images, labels), test = (_tensors(reader(root, **part)) for part in _parts(kind))
    except Exception as error:  # each format has errors of its own
        raise UserError(
            f"the files of {source.name} in {root} cannot be read ({told(error)}): remove them, and fetch them "
            "anew with --download"
        ) from error
    normalize = Normalize.of(images) if len(images) else None
    return Dataset(Split(images, labels, normalize), Split(*test, normalize), kind.classes)


def _reader(library: Any, kind: Kind) -> Any:
    """Torchvision's class, which takes files that are there for what they are: their hashes guard downloads alone."""
    base = getattr(library.datasets, kind.name)
    if kind.name.startswith("CIFAR"):
        changed: dict[str, Any] = {part: [(name, None) for name, _ in getattr(base, part)] for part in _CIFAR}
        changed["meta"] = base.meta | {"md5": None}
    elif kind.name == "SVHN":
        changed = {"_check_integrity": lambda images: (Path(images.root) / images.filename).is_file()}
    else:
        return base
    return type(kind.name, (base,), changed)


_CIFAR = ("train_list", "test_list")


def _parts(kind: Kind) -> tuple[dict[str, Any], dict[str, Any]]:
    """What names the training and the test samples."""
    if kind.name == "SVHN":
        return {"split": "train"}, {"split": "test"}
    return {"train": True}, {"train": False}


def _tensors(images: Any) -> tuple[Tensor, Tensor]:
    """Images with their channels first, and labels."""
    pixels = torch.as_tensor(images.data)
    if pixels.ndim == 3:
        pixels = pixels.unsqueeze(1)
    elif pixels.shape[-1] == 3 and pixels.shape[1] != 3:
        pixels = pixels.permute(0, 3, 1, 2)
    labels = images.labels if hasattr(images, "labels") else images.targets
    return pixels.contiguous(), torch.as_tensor(np.asarray(labels, dtype=np.int64))
