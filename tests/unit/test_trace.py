"""The trace of ranks that are threads: complete, nested, in the order of cause and effect."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mpidec import DistributedOptimizer, Network, Topology, UserError, World
from mpidec.folder import Folder
from mpidec.spans import Recorder
from mpidec.train.trace.clocks import Reading, compare
from mpidec.train.trace.write import FILE, start_trace, write_trace
from mpidec.world import run_on_threads
from support.traces import STEPS, Trace, refuse_overlaps, traced

pytestmark = pytest.mark.timeout(60)

GOSSIP = {"encode", "exchange post", "exchange wait", "decode"}
KINDS = {
    "choco": GOSSIP,
    "dpsgd": GOSSIP,
    "allreduce": {"encode", "agree", "all-reduce", "decode"},
    "dgc": {"encode", "agree", "all-gather", "decode"},
}


def trace_of(folder: Path, name: str, size: int = 4, **options: Any) -> tuple[Trace, list[DistributedOptimizer]]:
    ranks = run_on_threads(lambda world: traced(world, name, folder, **options), size)
    return Trace.read(folder), ranks


def shifted(rank: int) -> Callable[[], int]:
    """A clock that is wrong by 7 s times the rank."""
    return lambda: time.perf_counter_ns() + 7_000_000_000 * rank


@pytest.mark.parametrize("name", KINDS)
def test_every_step_of_every_rank_is_there(tmp_path: Path, name: str) -> None:
    trace, ranks = trace_of(tmp_path, name)
    every = KINDS[name] | {"forward backward", "step", "local step"}
    for event in trace.events:
        assert {"name", "ph", "ts", "pid", "tid"} <= event.keys()
        assert event["ts"] >= 0
        assert event["dur"] >= 0
    for rank in range(4):
        refuse_overlaps(trace, rank)
        for step in range(1, STEPS + 1):
            assert every <= {span["name"] for span in trace.of("X", rank) if span["args"]["step"] == step}
        assert {span["name"] for span in trace.of("X", rank)} == every | {"evaluate"}
        (evaluation,) = trace.of("X", rank, "evaluate")
        assert evaluation["args"]["step"] == STEPS
        handed_over = trace.of("X", rank, "exchange post", "all-reduce", "all-gather", "agree")
        assert sum(span["args"]["bytes"] for span in handed_over) == ranks[rank].comm.bytes_sent > 0
        assert all(span["cat"] == "network" for span in handed_over)
    assert [event["args"]["name"] for event in trace.of("M", None, "thread_name")] == [f"rank {r}" for r in range(4)]


@pytest.mark.parametrize("name", KINDS)
def test_seconds_are_those_of_the_spans(tmp_path: Path, name: str) -> None:
    trace, ranks = trace_of(tmp_path, name)
    for rank, optimizer in enumerate(ranks):
        spans = trace.of("X", rank)
        seconds = optimizer.seconds
        network = sum(span["dur"] for span in spans if span["cat"] == "network") / 1e9
        assert network == pytest.approx(optimizer.comm.seconds_waiting) == pytest.approx(seconds["exchange"])
        local = sum(span["dur"] for span in spans if span["name"] == "local step") / 1e9
        assert local == pytest.approx(seconds["local_step"])
        step = sum(span["dur"] for span in spans if span["name"] == "step") / 1e9
        assert step == pytest.approx(sum(seconds.values()))


def test_what_happens_in_a_step_lies_inside_of_it(tmp_path: Path) -> None:
    trace, _ = trace_of(tmp_path, "choco")
    order = ["forward backward", "step", "local step", "encode", "exchange post", "exchange wait", "decode"]
    for rank in range(4):
        assert [span["name"] for span in trace.of("X", rank)] == order * STEPS + ["evaluate"]
        for step in trace.of("X", rank, "step"):
            inside = [one for one in trace.of("X", rank) if step["ts"] < one["ts"] < step["end"]]
            assert {one["args"]["step"] for one in inside} == {step["args"]["step"]}
            assert len(inside) == 5


def test_no_wait_ends_before_its_messages_are_posted_with_clocks_of_one_host(tmp_path: Path) -> None:
    trace, _ = trace_of(tmp_path, "choco", pause=0.02)
    assert [one["clock_offset_us"] for one in trace.ranks] == [[0.0, 0.0]] * 4
    arrows = trace.arrows()
    assert len(arrows) == STEPS * 4 * 2
    for post, wait in arrows:
        assert post["args"]["step"] == wait["args"]["step"]
        assert post["tid"] in ((wait["tid"] + 1) % 4, (wait["tid"] - 1) % 4)
        assert wait["end"] >= post["ts"]
    waiting = {rank: sum(span["dur"] for span in trace.of("X", rank, "exchange wait")) for rank in range(4)}
    assert min(waiting[0], waiting[2]) > waiting[1], "the neighbours wait for rank 1"


@pytest.mark.parametrize(
    "graph",
    [
        Topology.from_matrix(0.5 * np.eye(4) + 0.5 * np.roll(np.eye(4), 1, axis=0)),
        Topology.cycle([Topology.named("ring", 4), Topology.named("complete", 4)]),
    ],
    ids=["one way", "changing"],
)
def test_arrows_follow_the_graph_of_their_step(tmp_path: Path, graph: Topology) -> None:
    trace, _ = trace_of(tmp_path, "dpsgd", graph=graph)
    ways = {(post["args"]["step"], post["tid"], wait["tid"]) for post, wait in trace.arrows()}
    steps = range(1, STEPS + 1)
    assert ways == {(t, rank, peer) for t in steps for rank in range(4) for peer in graph.at(t).listeners(rank)}


def test_several_messages_of_a_step_are_told_apart(tmp_path: Path) -> None:
    trace, _ = trace_of(tmp_path, "choco", resync=2)
    arrows = trace.arrows()
    assert len(arrows) == (STEPS + STEPS // 2) * 4 * 2
    posts = [trace.of("X", rank, "exchange post") for rank in range(4)]
    waits = [trace.of("X", rank, "exchange wait") for rank in range(4)]
    for post, wait in arrows:
        assert posts[post["tid"]].index(post) == waits[wait["tid"]].index(wait)
        assert wait["args"]["bytes"] == post["args"]["bytes"]


def test_shifted_clocks_are_put_right(tmp_path: Path) -> None:
    run_on_threads(lambda world: traced(world, "choco", tmp_path, clock=shifted(world.rank), pause=0.003), 4)
    trace = Trace.read(tmp_path)
    for rank, about in enumerate(trace.ranks):
        for offset, round_trip in zip(about["clock_offset_us"], about["round_trip_us"], strict=True):
            assert abs(offset + 7_000_000 * rank) <= round_trip / 2
    assert max(event["end"] for event in trace.events) < 5_000_000_000
    slack = max(max(about["round_trip_us"]) for about in trace.ranks) * 1000
    for post, wait in trace.arrows():
        assert wait["end"] >= post["ts"] - slack


def test_a_clock_that_runs_fast_is_put_right(tmp_path: Path) -> None:
    begun = time.perf_counter_ns()

    def fast(rank: int) -> Callable[[], int]:
        return lambda: begun + round((time.perf_counter_ns() - begun) * (1 + rank / 2))

    run_on_threads(lambda world: traced(world, "choco", tmp_path, clock=fast(world.rank), pause=0.01), 4)
    trace = Trace.read(tmp_path)
    slack = max(max(about["round_trip_us"]) for about in trace.ranks) * 1000
    for rank in range(4):
        start, end = trace.ranks[rank]["clock_offset_us"]
        assert start - end >= STEPS * 10_000 * rank / 2 - slack / 1000
    for post, wait in trace.arrows():
        assert wait["end"] >= post["ts"] - slack


def test_clocks_are_compared_within_a_round_trip() -> None:
    def work(world: World) -> Reading:
        return compare(world.transport, shifted(world.rank))

    readings = run_on_threads(work, 3)
    assert readings[0].offset == 0
    for rank in (1, 2):
        assert abs(readings[rank].offset + 7_000_000_000 * rank) <= readings[rank].round_trip / 2 < 1_000_000_000


def test_a_full_recorder_says_so(tmp_path: Path, capsys) -> None:
    trace, _ = trace_of(tmp_path, "choco", largest=20)
    left_out = 7 * STEPS + 1 - 20
    assert [(one["spans"], one["left_out"]) for one in trace.ranks] == [(20, left_out)] * 4
    for rank in range(4):
        assert len(trace.of("X", rank)) == 20
        (stop,) = trace.of("i", rank)
        assert stop["name"] == f"recording stopped: {left_out} later spans left out"
        assert stop["ts"] == max(span["end"] for span in trace.of("X", rank))
    told = f"{FILE} holds the first 20 spans of each rank: {4 * left_out} later ones were left out\n"
    assert capsys.readouterr().out == told


def test_nothing_is_told_where_nothing_is_left_out(tmp_path: Path, capsys) -> None:
    trace_of(tmp_path, "allreduce", size=2)
    assert capsys.readouterr().out == ""


def test_ranks_that_did_nothing_have_a_track(tmp_path: Path) -> None:
    def work(world: World) -> None:
        network = Network(world.transport, Topology.named("ring", 4))
        started = start_trace(network, Recorder(shifted(-world.rank)))
        if world.rank == 2:
            with network.span("alone"):
                pass
        write_trace(network, started, Folder(tmp_path) if world.rank == 0 else None)

    run_on_threads(work, 4)
    trace = Trace.read(tmp_path)
    assert [one["spans"] for one in trace.ranks] == [0, 0, 1, 0]
    assert trace.of("X", 2, "alone")[0]["ts"] < 5_000_000_000
    assert len(trace.of("M", None, "thread_name")) == 4


def test_one_rank_alone_is_traced(tmp_path: Path) -> None:
    trace, _ = trace_of(tmp_path, "choco", size=1)
    assert len(trace.ranks) == 1
    assert not trace.arrows()


def test_a_folder_that_cannot_be_written_is_told_by_all_ranks(tmp_path: Path) -> None:
    def work(world: World) -> str:
        with pytest.raises(UserError) as caught:
            traced(world, "choco", tmp_path / "gone")
        compare(world.transport, time.perf_counter_ns)  # nothing is under way that it would take for its own
        return str(caught.value)

    told = run_on_threads(work, 4)
    assert "cannot be written: No such file" in told[0]
    assert told == [told[0]] * 4
