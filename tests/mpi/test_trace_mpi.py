"""The trace of real processes: one file with all ranks, by one clock where they share a host."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from mpidec import World
from mpidec.train.trace.clocks import compare
from support.traces import STEPS, Trace, refuse_overlaps, traced

pytestmark = pytest.mark.mpi


@pytest.fixture
def shared(world: World, tmp_path: Path) -> Path:
    folder: Path = world.transport.broadcast_object(tmp_path)
    return folder


@pytest.mark.parametrize("name", ["choco", "allreduce", "dgc"])
def test_one_file_holds_all_ranks(world: World, shared: Path, name: str) -> None:
    sent = world.transport.all_gather_objects(traced(world, name, shared).comm.bytes_sent)
    assert [path.name for path in shared.iterdir()] == ["trace.json.gz"]
    trace = Trace.read(shared)
    assert len(trace.ranks) == world.size
    for rank in range(world.size):
        refuse_overlaps(trace, rank)
        assert {span["args"]["step"] for span in trace.of("X", rank, "step")} == set(range(1, STEPS + 1))
        handed_over = trace.of("X", rank, "exchange post", "all-reduce", "all-gather", "agree")
        assert sum(span["args"].get("bytes", 0) for span in handed_over) == sent[rank]
    world.transport.barrier()


@pytest.mark.mpi(min_size=2)
def test_waits_end_after_the_posts_that_they_wait_for(world: World, shared: Path) -> None:
    traced(world, "choco", shared, pause=0.003)
    trace = Trace.read(shared)
    assert {tuple(one["clock_offset_us"]) for one in trace.ranks} == {(0.0, 0.0)}, "all ranks are on this host"
    arrows = trace.arrows()
    assert len(arrows) == STEPS * sum({2: 1}.get(world.size, 2) for _ in range(world.size))
    assert all(wait["end"] >= post["ts"] for post, wait in arrows)
    world.transport.barrier()


@pytest.mark.mpi(min_size=2)
def test_a_shifted_clock_is_found(world: World) -> None:
    shift = 3_600_000_000_000 * world.rank
    reading = compare(world.transport, lambda: time.perf_counter_ns() - shift)
    assert abs(reading.offset - shift) <= reading.round_trip / 2
    assert reading.round_trip < 1_000_000_000
