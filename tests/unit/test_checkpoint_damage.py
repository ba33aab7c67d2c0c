"""A damaged checkpoint: one sentence on every rank, which says what to do; nothing in it is executed."""

from __future__ import annotations

import hashlib
import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from support.checkpoints import on_ranks, save, step, told

Harm = Callable[[Path], None]


class Foreign:
    """Unpickling it makes a file."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return Path.touch, (self.mark,)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    on_ranks(3, lambda transport: save(transport, tmp_path / "run", 1, 2, 3))
    return tmp_path / "run"


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def turn_into_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def foreign(path: Path) -> None:
    path.write_bytes(pickle.dumps(Foreign(path.with_name("executed"))))


def trusted(path: Path, content: bytes) -> None:
    """``content`` in the file of a rank, with a manifest that vouches for it."""
    path.write_bytes(content)
    manifest = json.loads((path.parent / "manifest.json").read_text())
    entry = next(one for one in manifest["files"] if one["name"] == path.name)
    entry |= {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    (path.parent / "manifest.json").write_text(json.dumps(manifest))


def trusted_foreign(path: Path) -> None:
    trusted(path, pickle.dumps(Foreign(path.with_name("executed")), protocol=2))


def trusted_foreign_zip(path: Path) -> None:
    torch.save({"model": {}, "more": Foreign(path.with_name("executed"))}, path)
    trusted(path, path.read_bytes())


def trusted_other(path: Path) -> None:
    torch.save([1, 2], path)
    trusted(path, path.read_bytes())


FILES: dict[str, tuple[Harm, str]] = {
    "cut off": (cut, "were written"),
    "a bit": (flip, "is damaged, or not the file that was saved"),
    "gone": (Path.unlink, "is missing"),
    "folder": (turn_into_folder, "cannot be read (Is a directory)"),
    "foreign": (foreign, "were written"),
    "foreign, vouched for": (trusted_foreign, "holds more than tensors and plain values"),
    "foreign zip, vouched for": (trusted_foreign_zip, "holds more than tensors and plain values"),
    "no state": (trusted_other, "holds no state of a rank"),
}


@pytest.mark.parametrize(("harm", "sentence"), FILES.values(), ids=FILES)
@pytest.mark.parametrize("rank", [0, 2])
def test_a_damaged_file(run: Path, harm: Harm, sentence: str, rank: int) -> None:
    path = step(run, 3) / f"rank-{rank:04d}.pt"
    harm(path)
    said = told(run)
    assert said.startswith(f"rank {rank}: {path} ")
    assert sentence in said
    assert said.endswith(f"; take the checkpoint before: --resume {step(run, 2)}")
    assert not (step(run, 3) / "executed").exists()


def test_the_files_of_two_ranks_are_not_exchanged(run: Path) -> None:
    shutil.copy(step(run, 3) / "rank-0001.pt", step(run, 3) / "rank-0002.pt")
    assert told(run).startswith(f"rank 2: {step(run, 3)}/rank-0002.pt is damaged, or not the file that was saved")


def test_the_one_that_is_named_is_whole_on_every_rank(run: Path) -> None:
    (step(run, 3) / "rank-0000.pt").unlink()
    flip(step(run, 2) / "rank-0002.pt")
    assert told(run).endswith(f"--resume {step(run, 1)}")
    cut(step(run, 1) / "rank-0001.pt")
    assert told(run).endswith("no earlier checkpoint of this run is whole: bring back what was saved, or start anew")
    (step(run, 3) / "rank-0001.pt").unlink()
    assert f"{step(run, 3)}/rank-0000.pt is missing (and 1 more of 3 ranks); no earlier" in told(run)


def test_one_of_fewer_ranks_is_no_advice(tmp_path: Path) -> None:
    on_ranks(2, lambda transport: save(transport, tmp_path, 1))
    on_ranks(3, lambda transport: save(transport, tmp_path, 2))
    cut(step(tmp_path, 2) / "rank-0000.pt")
    assert "no earlier checkpoint of this run is whole" in told(tmp_path)


def test_the_advice_fits_a_folder_that_one_stands_in(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cut(step(run, 3) / "rank-0000.pt")
    monkeypatch.chdir(step(run, 3))
    assert told(run, Path()).endswith("--resume ../step-00000002")


def changed(**more: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda manifest: {**manifest, **more}


def with_file(**more: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda manifest: {**manifest, "files": [manifest["files"][0] | more, *manifest["files"][1:]]}


MANIFESTS: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "no mapping": (lambda manifest: [manifest], "it holds no mapping"),
    "no version": (changed(format=None), "it has no format version"),
    "version true": (changed(format=True), "it has no format version"),
    "version 0": (changed(format=0), "it has no format version"),
    "no step": (changed(step="3"), "'step' is missing or of another type"),
    "step true": (changed(step=True), "'step' is missing or of another type"),
    "another step": (changed(step=2), "it is of step 2"),
    "no files": (changed(files=[]), "it lists 0 files for 3 ranks"),
    "fewer files": (changed(ranks=4), "it lists 3 files for 4 ranks"),
    "no parameters": (changed(parameters={"count": "1"}), "the parameters have no count"),
    "no entry": (lambda manifest: changed(files=[7] * 3)(manifest), "the file of rank 0 has no sound name"),
    "name outside": (with_file(name="../../../etc/rank-0000.pt"), "the file of rank 0 has no sound name"),
    "absolute name": (with_file(name="/rank-0000.pt"), "the file of rank 0 has no sound name"),
    "name of another": (with_file(name="rank-0001.pt"), "the file of rank 0 is called rank-0001.pt"),
    "line in a name": (with_file(name="rank-0000.pt\n"), "the file of rank 0 has no sound name"),
    "no size": (with_file(size="9"), "the file of rank 0 has no size"),
    "no digest": (with_file(sha256=None), "the file of rank 0 has no size or no digest"),
    "short digest": (with_file(sha256="ab"), "the digest of the file of rank 0 is none"),
}


@pytest.mark.parametrize(("change", "sentence"), MANIFESTS.values(), ids=MANIFESTS)
def test_a_broken_manifest(run: Path, change: Callable[[dict[str, Any]], Any], sentence: str) -> None:
    path = step(run, 3) / "manifest.json"
    path.write_text(json.dumps(change(json.loads(path.read_text()))))
    advice = f"; take the checkpoint before: --resume {step(run, 2)}"
    said = told(run)
    assert said.startswith(f"{path} is broken: {sentence}")
    assert said.endswith(advice)


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[" * 100_000, b"nonsense"])
def test_a_manifest_that_is_no_json(run: Path, content: bytes) -> None:
    path = step(run, 3) / "manifest.json"
    path.write_bytes(content)
    assert told(run) == f"{path} is broken: it is no JSON; take the checkpoint before: --resume {step(run, 2)}"


def test_a_later_format(run: Path) -> None:
    path = step(run, 3) / "manifest.json"
    path.write_text(json.dumps({"format": 2, "mpidec": "9.0", "anything": "else"}))
    assert told(run) == f"{step(run, 3)} has format 2, by mpidec 9.0, and mpidec 0.1.0 reads up to 1: update mpidec"


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_another_number_of_ranks(run: Path, ranks: int) -> None:
    said = told(run, ranks=ranks)
    assert said.startswith(
        f"the checkpoint {step(run, 3)} was saved by 3 ranks, and this job has {ranks}: start it with"
    )
    assert said.endswith(f"or start a new run from its averaged model with --resume-as {run}")
