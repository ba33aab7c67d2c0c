"""Folders of images, and a torchvision that cannot read them."""

from __future__ import annotations

import json
import multiprocessing
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from mpidec import UserError
from mpidec.train.data.lazy import LazySplit
from support.images import load, refused, write_folder
from support.jobs import ROOT, environment
from support.torchvision import torchvision_or_skip

torchvision_or_skip()


@pytest.mark.parametrize("judged", ["val", "test"])
@pytest.mark.parametrize("workers", [0, 1])
def test_folders_of_images(tmp_path: Path, judged: str, workers: int) -> None:
    write_folder(tmp_path, "train")
    write_folder(tmp_path, judged, images=2)
    before = len(multiprocessing.active_children())
    loaded = load("imagefolder", tmp_path, image_size=16, workers=workers)
    assert isinstance(loaded.train, LazySplit)
    assert (loaded.sample, loaded.classes, len(loaded.train), len(loaded.test)) == ((3, 16, 16), 3, 12, 6)
    assert loaded.train.labels.tolist() == [0] * 4 + [1] * 4 + [2] * 4
    ((inputs, labels),) = loaded.train.batches([torch.tensor([6, 3])])
    assert len(multiprocessing.active_children()) == before + workers
    assert labels.tolist() == [1, 0]
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    for image, colour in zip(inputs, ((60, 20, 200), (20, 20, 20)), strict=True):
        torch.testing.assert_close(image.mean((1, 2)), (torch.tensor(colour) / 255 - mean) / std)
    assert load("imagefolder", tmp_path).sample == (3, 64, 64)


def test_odd_folders_are_refused(tmp_path: Path) -> None:
    refused("--data imagefolder needs a folder with train/CLASS/ and val/CLASS/", "imagefolder", None)
    refused(f"{tmp_path} has no folder train", "imagefolder", tmp_path)
    write_folder(tmp_path / "1", "train")
    refused("has no folder val, nor test", "imagefolder", tmp_path / "1")
    (tmp_path / "1" / "val").mkdir()
    refused("1/val has no folders, of which it needs one for each class", "imagefolder", tmp_path / "1")
    write_folder(tmp_path / "1", "val", "abd")
    refused("1/train has the class c, and ", "imagefolder", tmp_path / "1")
    write_folder(tmp_path / "2", "train", "abc")
    write_folder(tmp_path / "2", "val", "abcd")
    refused("2/val has the class d, and ", "imagefolder", tmp_path / "2")
    write_folder(tmp_path / "3", "train", "a")
    write_folder(tmp_path / "3", "val", "a")
    refused("one class only", "imagefolder", tmp_path / "3")
    write_folder(tmp_path / "4", "train", "ab")
    write_folder(tmp_path / "4", "val", "ab", images=0)
    refused("4/val has a class without images (FileNotFoundError: ", "imagefolder", tmp_path / "4")


@pytest.mark.parametrize("workers", [0, 1])
def test_a_damaged_image_is_named(tmp_path: Path, workers: int) -> None:
    write_folder(tmp_path, "train")
    write_folder(tmp_path, "val")
    damaged = tmp_path / "train" / "b" / "1.png"
    damaged.write_bytes(damaged.read_bytes()[:50])
    loaded = load("imagefolder", tmp_path, workers=workers)
    with pytest.raises(
        UserError, match=f"^{re.escape(str(damaged))} cannot be read as an image .*: repair or remove it"
    ):
        list(loaded.train.batches([torch.tensor([0, 5])]))


@pytest.mark.parametrize(
    ("body", "version", "sentence"),
    [
        (
            "raise RuntimeError('operator torchvision::nms does not exist')",
            "9.9",
            "the installed 9.9 does not work with",
        ),
        (None, None, "needs torchvision, which is not installed: pip install torchvision"),
    ],
)
def test_a_torchvision_that_does_not_work(tmp_path: Path, body: str | None, version: str | None, sentence: str) -> None:
    """In a process of its own, before whose libraries another torchvision stands, or none."""
    if body is not None:
        (tmp_path / "torchvision").mkdir()
        (tmp_path / "torchvision" / "__init__.py").write_text(body)
        (tmp_path / f"torchvision-{version}.dist-info").mkdir()
        meta = f"Metadata-Version: 2.1\nName: torchvision\nVersion: {version}\n"
        (tmp_path / f"torchvision-{version}.dist-info" / "METADATA").write_text(meta)
    hide = "" if body is not None else (
        "import sys, importlib.metadata as m; sys.modules['torchvision'] = None; there = m.version\n"
        "def version(name):\n    if name == 'torchvision': raise m.PackageNotFoundError(name)\n    return there(name)\n"
        "m.version = version\n"
    )  # fmt: skip
    program = hide + (
        "import json, pathlib\nfrom mpidec.train import data, models\nfrom mpidec.train.data.source import Source\n"
        "from mpidec.transport.solo import Solo\nfrom mpidec import UserError\nsaid = []\n"
        "for try_ in (lambda: data.load(Source('mnist'), Solo()),\n"
        "             lambda: data.load(Source('imagefolder', pathlib.Path('.')), Solo()),\n"
        "             lambda: models.build('resnet18', (3, 32, 32), 10)):\n"
        "    try: try_()\n"
        "    except UserError as error: said.append(str(error))\n"
        "print(json.dumps(said))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment(PYTHONPATH=f"{tmp_path}:{ROOT}"), cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    said = json.loads(done.stdout or done.stderr)
    assert len(said) == 3
    assert [one.split(" needs ")[0].split(",")[0] for one in said] == [
        "--data mnist", "--data imagefolder", "--model resnet18",
    ]  # fmt: skip
    assert all(sentence in one and "\n" not in one for one in said)
