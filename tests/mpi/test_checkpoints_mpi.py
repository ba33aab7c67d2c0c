"""Checkpoints of real ranks: saved by all or by none, and the same sentence everywhere."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from mpidec import UserError, World
from mpidec.train.checkpoint.store import Checkpoints
from support.checkpoints import about, same, save, state_of, step, tree
from support.problems import net
from support.table import TABLE
from support.training import train, wrap_row

pytestmark = pytest.mark.mpi


@pytest.fixture
def run(world: World) -> Iterator[Path]:
    """A folder that all ranks see."""
    folder = Path(world.transport.broadcast_object(tempfile.mkdtemp() if world.rank == 0 else None))
    yield folder
    world.transport.barrier()
    if world.rank == 0:
        shutil.rmtree(folder)


def sentence(world: World, work: Callable[[], Any]) -> str:
    """The one with which ``work`` ends on every rank."""
    with pytest.raises(UserError) as caught:
        work()
    everyone = world.transport.all_gather_objects(str(caught.value))
    assert len(set(everyone)) == 1
    return everyone[0]


def test_training_goes_on_where_it_was_saved(world: World, run: Path) -> None:
    model = net()
    optimizer = wrap_row(world, model, TABLE["choco"])
    train(world.rank, model, optimizer, 1, 5)
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    Checkpoints(run, world.transport, 1).save(state, about(5))
    train(world.rank, model, optimizer, 6, 10)

    state, manifest = Checkpoints(run, world.transport, 1).load(run)
    assert manifest["ranks"] == world.size
    again = net(seed=7)
    resumed = wrap_row(world, again, TABLE["choco"])
    again.load_state_dict(state["model"])
    resumed.load_state_dict(state["optimizer"])
    train(world.rank, again, resumed, 6, 10)
    assert torch.equal(resumed.flat.data, optimizer.flat.data)


def test_the_newest_stay(world: World, run: Path) -> None:
    store = save(world.transport, run, 1, 2, 3, 4, keep=2)
    assert sorted(path.name for path in (run / "checkpoints").glob("step*")) == ["step-00000003", "step-00000004"]
    assert same(store.load(run)[0], state_of(world.rank, 4))


@pytest.mark.parametrize("shared", [True, False], ids=["shared", "apart"])
def test_one_rank_that_cannot_write_stops_all_and_harms_nothing(world: World, run: Path, shared: bool) -> None:
    mine, last = run if shared else run / str(world.rank), world.size - 1
    store = save(world.transport, mine, 1)
    if world.rank == last:
        if shared:
            (step(mine, 2) / f".rank-{last:04d}.pt.partial").mkdir(parents=True)
        else:
            step(mine, 2).write_text("a file in the place of the folder")
    world.transport.barrier()
    before = tree(run)
    world.transport.barrier()
    told = sentence(world, lambda: store.save(state_of(world.rank, 2), about(2)))
    at_rank_0 = run if shared else run / "0"
    assert told.startswith(f"the checkpoint of step 2 cannot be written (rank {last}: ")
    assert "Is a directory" in told if shared else "File exists" in told
    assert told.endswith(f"go on with --resume {step(at_rank_0, 1)}")
    assert tree(run) == before
    world.transport.barrier()
    assert same(store.load(mine)[0], state_of(world.rank, 1))


def test_damage_on_one_rank_is_told_by_all(world: World, run: Path) -> None:
    store, last = save(world.transport, run, 1, 2), world.size - 1
    if world.rank == last:
        path = step(run, 2) / f"rank-{last:04d}.pt"
        path.write_bytes(path.read_bytes()[:-1])
    told = sentence(world, lambda: store.load(run))
    assert told.startswith(f"rank {last}: {step(run, 2)}/rank-{last:04d}.pt has ")
    assert told.endswith(f"; take the checkpoint before: --resume {step(run, 1)}")


def test_what_rank_0_alone_finds_is_told_by_all(world: World, run: Path) -> None:
    store = save(world.transport, run, 1)
    world.transport.barrier()
    if world.rank == 0:
        (run / "checkpoints" / "latest").write_text("../..")
    assert "names '../..', which is no checkpoint of this run" in sentence(world, store.latest)
    assert "does not exist" in sentence(world, lambda: store.load(run / "nowhere"))
