"""Image sets in their true formats, written small and read by the real torchvision."""

from __future__ import annotations

import hashlib
import tarfile
import threading
from functools import partial
from http.server import HTTPServer, SimpleHTTPRequestHandler
from pathlib import Path

import pytest
import torch

from mpidec.train.data.dataset import Split
from support.images import LABELS, TEST, TRAIN, WRITERS, load, pixels, refused, write_cifar10
from support.torchvision import torchvision_or_skip

torchvision_or_skip()


@pytest.mark.parametrize("name", WRITERS)
def test_images_come_as_they_were_written(name: str, tmp_path: Path) -> None:
    write, *_ = WRITERS[name]
    write(tmp_path)
    loaded = load(name, tmp_path)
    grey = "mnist" in name
    assert loaded.sample == ((1, 28, 28) if grey else (3, 32, 32))
    assert loaded.classes == (100 if name == "cifar100" else 10)
    for split, number in ((loaded.train, TRAIN), (loaded.test, TEST)):
        assert isinstance(split, Split)
        assert split.inputs.dtype == torch.uint8
        written = torch.from_numpy(pixels(number, *loaded.sample))
        if not grey and "cifar" in name:
            written = torch.from_numpy(pixels(number, 3 * 32 * 32)).view(-1, 3, 32, 32)
        if grey:
            written = torch.from_numpy(pixels(number, 28, 28)).unsqueeze(1)
        assert torch.equal(split.inputs, written)
        assert split.labels.tolist() == (LABELS[number] * (11 if name == "cifar100" else 1)).tolist()
    inputs, _ = loaded.train.batch(torch.arange(TRAIN))
    assert abs(float(inputs.mean())) < 1e-5
    assert float(inputs.var()) == pytest.approx(1, abs=1e-3)
    assert loaded.test.normalize == loaded.train.normalize


@pytest.mark.parametrize("name", WRITERS)
def test_missing_and_truncated_files_are_refused(name: str, tmp_path: Path) -> None:
    write, first, last = WRITERS[name]
    refused(f"{name} is not in {tmp_path}, where {first} is missing: give its folder with --data-dir, or fe",
            name, tmp_path)  # fmt: skip
    write(tmp_path)
    (tmp_path / last).rename(tmp_path / "elsewhere")
    refused(f"where {last} is missing", name, tmp_path)
    (tmp_path / "elsewhere").rename(tmp_path / last)
    whole = (tmp_path / first).read_bytes()
    (tmp_path / first).write_bytes(whole[: len(whole) // 2])
    refused(f"the files of {name} in {tmp_path} cannot be read (", name, tmp_path)
    (tmp_path / first).write_bytes(b"")
    refused(f"the files of {name} in {tmp_path} cannot be read (", name, tmp_path)


def test_a_download_that_fails_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server is this machine, where nobody listens."""
    from torchvision.datasets import CIFAR10

    monkeypatch.setattr(CIFAR10, "url", "http://127.0.0.1:9/cifar-10-python.tar.gz")
    refused(f"cifar10 cannot be downloaded to {tmp_path} (URLError: ", "cifar10", tmp_path, download=True)


def test_what_is_there_is_not_downloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from torchvision.datasets import CIFAR10

    monkeypatch.setattr(CIFAR10, "url", "http://127.0.0.1:9/cifar-10-python.tar.gz")
    write_cifar10(tmp_path)
    assert len(load("cifar10", tmp_path, download=True).train) == TRAIN


def test_a_download_is_guarded_by_its_hash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A true server gives an archive in the true format, which is not the published one."""
    from torchvision.datasets import CIFAR10

    write_cifar10(tmp_path / "there")
    with tarfile.open(tmp_path / "cifar.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "there" / "cifar-10-batches-py", "cifar-10-batches-py")
    handler = partial(SimpleHTTPRequestHandler, directory=str(tmp_path))
    monkeypatch.setattr(SimpleHTTPRequestHandler, "log_message", lambda *_: None)
    with HTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setattr(CIFAR10, "url", f"http://127.0.0.1:{server.server_port}/cifar.tar.gz")
        refused("cifar10 cannot be downloaded to", "cifar10", tmp_path / "here", download=True)
        digest = hashlib.md5((tmp_path / "cifar.tar.gz").read_bytes()).hexdigest()
        monkeypatch.setattr(CIFAR10, "tgz_md5", digest)
        assert len(load("cifar10", tmp_path / "here", download=True).train) == TRAIN
        server.shutdown()
