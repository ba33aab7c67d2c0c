"""The spans of ranks in the trace-event format, which ui.perfetto.dev and chrome://tracing read."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from mpidec.spans import ENDED
from mpidec.topology import Topology
from mpidec.train.trace.clocks import Reading, Times

POST, WAIT = "exchange post", "exchange wait"
NETWORK = {POST, WAIT, "all-reduce", "all-gather", "agree"}


@dataclass(frozen=True)
class Track:
    """What is told of a rank beside its spans: ``first`` is when they begin, in nanoseconds of rank 0.

    ``clocks``: how its clock differed at the start and at the end.
    """

    host: str
    names: list[str]
    count: int
    left_out: int
    first: int
    clocks: tuple[Reading, Reading]


def text(topology: Topology, tracks: list[Track], parts: Iterator[Times]) -> Iterator[str]:
    """The file, an event a line, from the spans of each rank."""
    start = min(track.first for track in tracks)
    separator = '{"displayTimeUnit": "ms", "traceEvents": [\n'
    for rank, part in enumerate(parts):
        for event in events(topology, tracks, rank, part, start):
            yield separator + json.dumps(event)
            separator = ",\n"
    about = [
        {
            "rank": rank,
            "host": track.host,
            "spans": track.count,
            "left_out": track.left_out,
            "clock_offset_us": [reading.offset / 1000 for reading in track.clocks],
            "round_trip_us": [reading.round_trip / 1000 for reading in track.clocks],
        }
        for rank, track in enumerate(tracks)
    ]
    yield f'\n], "otherData": {json.dumps({"ranks": about})}}}\n'


def events(topology: Topology, tracks: list[Track], rank: int, part: Times, start: int) -> Iterator[dict[str, Any]]:
    """What ``rank`` did: its names, its spans, its messages, and where recording has stopped, if it has.

    ``part``: spans as ``trace.spans`` gives them; ``start``: what the times, in microseconds, count from. A host is a
    process and a rank a thread of it, so that all ranks of a host stand below each other at once.
    """
    track = tracks[rank]
    # Numbered by its first rank, above all of them: a thread numbered as its process would be shown as its main one.
    place = {"pid": len(tracks) + [one.host for one in tracks].index(track.host), "tid": rank}
    for name, argument in (
        ("process_name", {"name": track.host}),
        ("thread_name", {"name": f"rank {rank}"}),
        ("thread_sort_index", {"sort_index": rank}),
    ):
        yield {"name": name, "ph": "M", "ts": 0, **place, "args": argument}
    turns: Counter[tuple[str, int]] = Counter()
    for index, began, ended, step, nbytes in part.tolist():
        name = track.names[index]
        yield {
            "name": name,
            "cat": "network" if name in NETWORK else "compute",
            "ph": "X",
            "ts": (began - start) / 1000,
            "dur": (ended - began) / 1000,
            **place,
            "args": {"step": step, "bytes": nbytes} if nbytes else {"step": step},
        }
        if name in (POST, WAIT):
            # Within the span, which ends at its end and not before: as the posting begins, as the waiting ends.
            moment = began if name == POST else max(began, ended - 1)
            for arrow in _arrows(topology.at(step), rank, name, f"{step}.{turns[name, step]}"):
                yield {"name": "message", "cat": "network", "ts": (moment - start) / 1000, **place, **arrow}
            turns[name, step] += 1
    if track.left_out:
        stopped = f"recording stopped: {track.left_out:,} later spans left out"
        yield {"name": stopped, "ph": "i", "s": "t", "ts": (int(part[:, ENDED].max()) - start) / 1000, **place}


def _arrows(graph: Topology, rank: int, name: str, exchange: str) -> Iterator[dict[str, str]]:
    """From where a rank posts a message to where each of its receivers has waited for it."""
    if name == POST:
        for peer in graph.listeners(rank):
            yield {"ph": "s", "id": f"{exchange}.{rank}-{peer}"}
    else:
        for peer in graph.neighbors(rank):
            yield {"ph": "f", "bp": "e", "id": f"{exchange}.{peer}-{rank}"}
