"""Checkpoints: what is saved comes back on its rank, the newest stay, and a failure leaves what was there."""

from __future__ import annotations

import json
import resource
from collections import Counter, OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from mpidec import UserError, __version__
from mpidec.train.checkpoint.store import Checkpoints
from mpidec.transport.base import Transport
from mpidec.transport.solo import Solo
from support.checkpoints import about, on_ranks, same, save, sentences, state_of, tree


@contextmanager
def files_up_to(nbytes: int) -> Iterator[None]:
    """A disk that takes no file above ``nbytes``."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_what_is_saved_comes_back_on_its_rank(tmp_path: Path) -> None:
    def work(transport: Transport) -> tuple[dict[str, Any], dict[str, Any], Path | None]:
        store = Checkpoints(tmp_path, transport, 2)
        assert store.latest() is None
        folder = store.save(state_of(transport.rank, 330), about(330))
        assert store.latest() == folder == tmp_path / "checkpoints" / "step-00000330"
        return *store.load(tmp_path), store.latest()

    for rank, (state, manifest, _) in enumerate(on_ranks(3, work)):
        assert same(state, state_of(rank, 330))
        assert (manifest["step"], manifest["ranks"], manifest["epoch"], manifest["format"]) == (330, 3, 1, 1)
        assert manifest["mpidec"] == __version__
        assert manifest["parameters"]["count"] == 6
        assert manifest["parameters"]["dtype"] == "float32"
        assert manifest["config"] == {"lr": 0.1, "out": "runs/x"}
    assert tree(tmp_path / "checkpoints") == [
        "latest",
        "step-00000330",
        *(f"step-00000330/{name}" for name in ("manifest.json", *(f"rank-{r:04d}.pt" for r in range(3)))),
    ]
    assert (tmp_path / "checkpoints" / "latest").read_text() == "step-00000330\n"


@pytest.mark.parametrize("given", ["", "checkpoints", "checkpoints/step-00000002"])
def test_each_of_three_paths_leads_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    store = save(Solo(), tmp_path, 1, 2)
    assert store.load(tmp_path / given)[1]["step"] == 2
    monkeypatch.chdir(tmp_path / given)
    assert store.load(Path())[1]["step"] == 2


def test_the_newest_stay(tmp_path: Path) -> None:
    on_ranks(3, lambda transport: save(transport, tmp_path, 1, 2, 3, 4, keep=2))
    assert [name for name in tree(tmp_path / "checkpoints") if "/" not in name] == [
        "latest",
        "step-00000003",
        "step-00000004",
    ]


def test_newest_is_what_was_written_last(tmp_path: Path) -> None:
    """Who goes on from an earlier checkpoint keeps what comes of it."""
    store = save(Solo(), tmp_path, 10, 20, 30, keep=3)
    store.load(tmp_path / "checkpoints" / "step-00000010")
    save(Solo(), tmp_path, 15, 16, keep=2)
    assert sorted(path.name for path in (tmp_path / "checkpoints").glob("step*")) == ["step-00000015", "step-00000016"]
    assert store.load(tmp_path)[1]["step"] == 16


def test_a_clock_that_was_set_back_removes_no_new_checkpoint(tmp_path: Path) -> None:
    save(Solo(), tmp_path, 1, 2)
    for path in (tmp_path / "checkpoints").glob("step*/manifest.json"):
        path.write_text(path.read_text().replace('"time": "20', '"time": "30'))
    store = save(Solo(), tmp_path, 3, keep=1)
    assert store.load(tmp_path)[1]["step"] == 3
    assert sorted(path.name for path in (tmp_path / "checkpoints").glob("step*")) == ["step-00000002", "step-00000003"]


def test_a_step_that_is_saved_again_is_replaced(tmp_path: Path) -> None:
    def work(transport: Transport) -> dict[str, Any]:
        store = save(transport, tmp_path, 7, keep=1)
        for _ in range(2):
            store.save({**state_of(transport.rank, 7), "metrics": {"loss": 0.25}}, about(7))
        return store.load(tmp_path)[0]

    assert [state["metrics"]["loss"] for state in on_ranks(2, work)] == [0.25, 0.25]
    assert len(tree(tmp_path / "checkpoints" / "step-00000007")) == 3


def test_what_was_never_finished_goes_and_what_is_not_ours_stays(tmp_path: Path) -> None:
    unfinished = tmp_path / "checkpoints" / "step-00000005"
    unfinished.mkdir(parents=True)
    for name in ("rank-0000.pt", ".rank-0001.pt.partial", "rank-0006.pt", ".manifest.json.partial"):
        (unfinished / name).write_text("")
    notes = tmp_path / "checkpoints" / "step-00000004" / "notes.txt"
    notes.parent.mkdir()
    notes.write_text("mine")
    on_ranks(2, lambda transport: save(transport, tmp_path, 6))
    assert not unfinished.exists()
    assert notes.read_text() == "mine"


def test_a_manifest_of_a_later_mpidec_is_not_removed(tmp_path: Path) -> None:
    save(Solo(), tmp_path, 1)
    path = tmp_path / "checkpoints" / "step-00000001" / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": 99}))
    before = tree(path.parent)
    save(Solo(), tmp_path, 2, 3, 4, keep=1)
    assert tree(path.parent) == before
    assert len(tree(tmp_path / "checkpoints")) == 1 + 3 + 3


def test_ranks_that_share_no_file_system(tmp_path: Path) -> None:
    def work(transport: Transport) -> tuple[dict[str, Any], dict[str, Any]]:
        host = tmp_path / str(transport.rank)
        store = save(transport, host, 1, 2, 3, keep=1)
        assert store.latest() == host / "checkpoints" / "step-00000003"
        return store.load(host)

    for rank, (state, _) in enumerate(on_ranks(3, work)):
        assert same(state, state_of(rank, 3))
    assert tree(tmp_path / "2" / "checkpoints") == ["step-00000003", "step-00000003/rank-0002.pt"]


@pytest.mark.mpi_skip  # MPI may make files of its own meanwhile
@pytest.mark.parametrize("first", [True, False])
def test_a_disk_that_is_full_on_one_rank(tmp_path: Path, first: bool) -> None:
    if not first:
        on_ranks(3, lambda transport: save(transport, tmp_path, 1))
    before = tree(tmp_path)

    def work(transport: Transport) -> None:
        state = state_of(transport.rank, 2)
        if transport.rank == 1:
            state["metrics"] = torch.zeros(100_000)
        Checkpoints(tmp_path, transport, 1).save(state, about(2))

    with files_up_to(20_000):
        told = sentences(3, work)
    assert told.startswith("the checkpoint of step 2 cannot be written (rank 1: ")
    assert f"{tmp_path}/checkpoints/step-00000002/rank-0001.pt: File too large" in told
    assert ("there is no earlier checkpoint" if first else "--resume " + str(tmp_path)) in told
    assert tree(tmp_path) == before
    if not first:
        states = on_ranks(3, lambda transport: save(transport, tmp_path).load(tmp_path)[0])
        assert all(same(state, state_of(rank, 1)) for rank, state in enumerate(states))


@pytest.mark.parametrize("again", [False, True], ids=["new", "again"])
@pytest.mark.parametrize("name", ["manifest.json", "latest"])
def test_rank_0_cannot_write_its_part(tmp_path: Path, name: str, again: bool) -> None:
    save(Solo(), tmp_path, 1, *([2, 3] if again else []))
    place = tmp_path / "checkpoints"
    blocked = place / "step-00000002" / f".{name}.partial" if name == "manifest.json" else place / f".{name}.partial"
    blocked.mkdir(parents=True)
    before = tree(tmp_path)
    told = sentences(2, lambda transport: save(transport, tmp_path, 2)) if not again else None
    if again:
        with pytest.raises(UserError, match="cannot be written") as caught:
            save(Solo(), tmp_path, 2)
        told = str(caught.value)
    assert told is not None
    assert f"(rank 0: {blocked.with_name(name)}: Is a directory)" in told
    if name == "manifest.json" or not again:
        assert tree(tmp_path) == before
    store = Checkpoints(tmp_path, Solo(), 1)
    assert same(store.load(tmp_path)[0], state_of(0, 3 if again else 1))
    if again:
        assert same(store.load(place / "step-00000002")[0], state_of(0, 2))


def test_a_file_in_place_of_the_folder_on_several_ranks(tmp_path: Path) -> None:
    def work(transport: Transport) -> None:
        host = tmp_path / str(transport.rank)
        host.mkdir()
        if transport.rank > 0:
            (host / "checkpoints").write_text("")
        save(transport, host, 1)

    told = sentences(3, work)
    assert f"(rank 1: {tmp_path}/1/checkpoints/step-00000001: " in told
    assert "(and 1 more of 3 ranks)" in told
    assert tree(tmp_path) == ["0", "1", "1/checkpoints", "2", "2/checkpoints"]


def test_only_what_loads_again_safely_is_saved(tmp_path: Path) -> None:
    def work(transport: Transport) -> None:
        state = {**state_of(transport.rank, 1), "scheduler": [{"best": np.float64(1.0) if transport.rank else 1.0}]}
        Checkpoints(tmp_path, transport, 1).save(state, about(1))

    told = sentences(2, work)
    assert "rank 1: state['scheduler'][0]['best'] is a numpy.float64, and only tensors" in told
    assert tree(tmp_path) == []


def test_every_plain_value_comes_back(tmp_path: Path) -> None:
    plain = {
        "numbers": (1, 2.5, True, None, 2**70, float("inf")),
        "more": [b"bytes", {3, 4}, Counter("aab"), OrderedDict(a=1), torch.Size([2]), torch.float16],
        "parameter": torch.nn.Parameter(torch.ones(2)),
        "module": torch.nn.BatchNorm1d(2).state_dict(),
        "empty": torch.zeros(0, dtype=torch.bool),
    }
    store = Checkpoints(tmp_path, Solo(), 1)
    store.save({**state_of(0, 1), **plain}, about(1))
    loaded, _ = store.load(tmp_path)
    assert all(same(loaded[name], dict(value) if name == "module" else value) for name, value in plain.items())
