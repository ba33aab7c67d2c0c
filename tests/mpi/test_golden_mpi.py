"""One recorded trajectory of each algorithm on real ranks, with the collectives of Horovod and of MPI."""

from pathlib import Path

import pytest

from mpidec import World
from support.golden import load
from support.replay import on_ranks, one_each


@pytest.mark.mpi(min_size=4)
@pytest.mark.parametrize("collectives", ["mpi", "horovod"])
@pytest.mark.parametrize("path", one_each(), ids=lambda path: path.name.split(".json")[0])
def test_trajectory(world: World, path: Path, collectives: str) -> None:
    golden = load(path)
    if world.size != golden.size:
        pytest.skip(f"recorded on {golden.size} ranks")
    if collectives == "horovod":
        if not golden.algorithm().central:
            pytest.skip("neighbours exchange through MPI, whatever sums")
        pytest.importorskip("horovod.torch", reason="Horovod is not installed")
    on_ranks(world, golden, collectives)
