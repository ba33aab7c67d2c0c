"""Spans of one rank, clocks that differ, and the format of a trace."""

from __future__ import annotations

import itertools
import time

import numpy as np
import pytest
import torch

from mpidec import Sign, Topology, UserError
from mpidec.folder import Folder
from mpidec.spans import FIELDS, LARGEST, Recorder, Span
from mpidec.train.metrics import Stopwatch
from mpidec.train.trace.clocks import Reading, aligned, compare
from mpidec.train.trace.events import Track, events
from mpidec.train.trace.write import spans
from mpidec.transport.solo import Solo

NONE = Reading(0, 0, 0)


def rows(recorder: Recorder) -> list[list[int]]:
    return np.array(recorder.values).reshape(-1, len(FIELDS)).tolist()


def test_a_span_is_measured_with_and_without_a_recorder() -> None:
    with Span("alone") as alone:
        sum(range(1000))
    assert 0 < alone.seconds < 1
    recorder = Recorder(itertools.count(0, 1000).__next__)
    with Span("outer", recorder, 3), Span("inner", recorder, 3, 64) as inner:
        inner.nbytes += 1
    assert recorder.names == ["inner", "outer"]
    assert rows(recorder) == [[0, 1000, 2000, 3, 65], [1, 0, 3000, 3, 0]]
    assert inner.seconds == 1e-6


def test_a_span_ends_where_an_error_leaves_it() -> None:
    recorder = Recorder()
    with pytest.raises(ValueError, match="inside"), Span("failing", recorder):
        raise ValueError("inside")
    assert recorder.count == 1


def test_recording_stops_at_its_bound() -> None:
    recorder = Recorder(largest=3)
    for step in range(5):
        with Span("step", recorder, step):
            pass
    assert (recorder.count, recorder.left_out) == (3, 2)
    assert [row[3] for row in rows(recorder)] == [0, 1, 2]


def test_the_bound_is_in_bytes_too() -> None:
    recorder = Recorder()
    for step in range(10_000):
        recorder.add("step", 10**15, 10**15 + step, step, step)
    assert recorder.values.itemsize * len(recorder.values) * LARGEST / recorder.count == 8_000_000


def test_encode_is_recorded_on_the_bound_object_alone() -> None:
    recorder, C, other = Recorder(), Sign(), Sign()
    C.bind([8], None, lambda name: Span(name, recorder, 5))
    message = C.encode(torch.ones(8))
    other.bind([8])
    other.encode(torch.ones(8))
    assert recorder.names == ["encode"]
    ((_, _, _, step, nbytes),) = rows(recorder)
    assert (step, nbytes) == (5, message.nbytes)
    C.bind([8], None, lambda name: Span(name, recorder, 6))
    C.encode(torch.ones(8))
    assert recorder.count == 2, "bound anew, not twice"
    C.bind([8])
    C.encode(torch.ones(8))
    assert recorder.count == 2


def test_outer_spans_come_before_inner_ones() -> None:
    recorder = Recorder()
    for name, began, ended in [("b", 5, 5), ("inner", 5, 9), ("outer", 5, 9), ("a", 2, 3), ("around", 1, 10)]:
        recorder.add(name, began, ended)
    ordered = spans(recorder, NONE, NONE)
    assert [recorder.names[row[0]] for row in ordered] == ["around", "a", "outer", "inner", "b"]


@pytest.mark.parametrize("shift", [0, 7_000_000, -123_456_789_012_345])
@pytest.mark.parametrize("there", [100, 900])
def test_the_midpoint_is_wrong_by_half_a_round_trip_at_most(shift: int, there: int) -> None:
    rounds, now = [], 10**15
    for delay in (50_000, 0, 3_000):  # the first round waits for others
        rounds.append((now, now + there + delay + shift, now + 1000 + 2 * delay))
        now += 10**6
    reading = Reading.of(rounds)
    assert reading.round_trip == 1000
    assert reading.at == 10**15 + 10**6 + 500
    assert abs(reading.offset - shift) <= 500
    assert shift or reading.offset == 0, "one clock is taken for one"


def test_a_drift_is_taken_out_and_order_kept() -> None:
    first, last = Reading(10**9, 5_000, 10), Reading(10**9 + 3600 * 10**9, 5_000 + 36_000_000, 10)
    times = np.array([0, 10**9, 10**9 + 1800 * 10**9, last.at, last.at + 10**9], dtype=np.int64)
    shifts = aligned(times, first, last) - times
    assert shifts.tolist() == [5_000, 5_000, 5_000 + 18_000_000, 36_005_000, 36_005_000]
    slower = aligned(np.arange(10**9, 10**9 + 4000, dtype=np.int64), first, Reading(10**9 + 4000, 1_000, 10))
    assert (np.diff(slower) >= 0).all()
    assert aligned(times, first, first).tolist() == (times + 5_000).tolist()


def test_one_rank_has_nobody_to_compare_with() -> None:
    assert compare(Solo(), lambda: 42) == Reading(42, 0, 0)


def test_hosts_are_processes_and_ranks_threads() -> None:
    def track(host: str) -> Track:
        return Track(host, ["step"], 1, 0, 1_000, (NONE, NONE))

    tracks = [track("a"), track("b"), track("a")]
    part = np.array([[0, 3_000, 4_500, 7, 0]])
    shown = [list(events(Topology.named("ring", 3), tracks, rank, part, 1_000)) for rank in range(3)]
    assert [(one[-1]["pid"], one[-1]["tid"]) for one in shown] == [(3, 0), (4, 1), (3, 2)]
    assert [event["args"]["name"] for event in shown[1][:2]] == ["b", "rank 1"]
    span = {"name": "step", "cat": "compute", "ph": "X", "ts": 2.0, "dur": 1.5, "pid": 4, "tid": 1, "args": {"step": 7}}
    assert shown[1][-1] == span


def test_a_stopwatch_adds_up_its_phases() -> None:
    watch = Stopwatch()
    for _ in range(2):
        with watch.phase("data"):
            time.sleep(0.002)
    assert 0.004 <= watch.seconds["data"] < watch.total


def test_a_long_file_takes_its_place_at_the_end_or_never(tmp_path) -> None:
    folder = Folder(tmp_path)
    folder.replace("file", "old é")
    with pytest.raises(TypeError, match="a bytes-like object"), folder.replacing("file") as file:
        file.writelines([b"half", "no bytes"])
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_text(encoding="utf-8") == "old é"
    with folder.replacing("file") as file:
        file.write(b"ne")
        assert (tmp_path / "file").read_text(encoding="utf-8") == "old é"
        file.write(b"w")
    assert (tmp_path / "file").read_text() == "new"
    with pytest.raises(UserError, match="cannot be written"), Folder(tmp_path / "gone").replacing("file"):
        pass
