"""Folders of images, one folder a class, decoded batch by batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from mpidec.errors import UserError
from mpidec.train.data.dataset import Dataset, Normalize
from mpidec.train.data.lazy import LazySplit
from mpidec.train.data.source import Source
from mpidec.train.foreign import told
from mpidec.train.vision import torchvision

SIZE = 64  # pixels of a side
USUAL = Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))  # means and deviations of ImageNet's channels


def load(source: Source) -> Dataset:
    """Images of ``train/CLASS/`` and ``val/CLASS/`` (or ``test/CLASS/``) in the directory, in uint8 of three channels.

    Their shorter side is resized to ``source.image_size`` pixels, and the centre cropped. Raises ``UserError`` where
    folders are missing or empty, and where training and test samples have different classes.
    """
    library, root = torchvision("--data imagefolder"), source.directory
    if root is None:
        raise UserError("--data imagefolder needs a folder with train/CLASS/ and val/CLASS/: give it with --data-dir")
    if not (root / "train").is_dir():
        raise UserError(f"{root} has no folder train: --data imagefolder reads train/CLASS/ and val/CLASS/ in it")
    judged = next((root / name for name in ("val", "test") if (root / name).is_dir()), None)
    if judged is None:
        raise UserError(f"{root} has no folder val, nor test: --data imagefolder reads its test samples there")
    train, test = (_opened(library, path, source.image_size or SIZE) for path in (root / "train", judged))
    if train.classes != test.classes:
        only = sorted(set(train.classes) ^ set(test.classes))[0]
        has, lacks = (root / "train", judged) if only in train.classes else (judged, root / "train")
        raise UserError(f"{has} has the class {only}, and {lacks} has not: both must have the same folders")
    classes = len(train.classes)
    samples = [
        LazySplit(images, torch.tensor(images.targets), str(images.root), classes, source.workers, USUAL)
        for images in (train, test)
    ]
    return Dataset(samples[0], samples[1], classes)


def _opened(library: Any, path: Path, size: int) -> Any:
    from torchvision import transforms

    steps = [transforms.Resize(size), transforms.CenterCrop(size), transforms.PILToTensor()]
    try:
        return library.datasets.ImageFolder(str(path), transforms.Compose(steps), loader=picture)
    except (FileNotFoundError, OSError) as error:
        if not any(child.is_dir() for child in path.iterdir()):
            raise UserError(f"{path} has no folders, of which it needs one for each class") from None
        raise UserError(f"{path} has a class without images ({told(error)})") from None


def picture(path: str) -> Any:
    """The image of a file, in three channels. Raises ``UserError`` for what is none."""
    from PIL import Image

    try:
        with Image.open(path) as image:
            return image.convert("RGB")
    except Exception as error:  # a damaged file may raise anything
        raise UserError(f"{path} cannot be read as an image ({told(error)}): repair or remove it") from None
