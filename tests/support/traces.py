"""Training with a recorder on ranks of any kind, and reading the trace that comes of it."""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mpidec import DistributedOptimizer, Network, Topology, World
from mpidec.folder import Folder
from mpidec.spans import LARGEST, Recorder
from mpidec.train.metrics import Meter
from mpidec.train.trace.write import FILE, start_trace, write_trace
from support.problems import loss_of, net
from support.table import LOCALS, TABLE
from support.training import STEPS_PER_EPOCH, network_of

STEPS = 6


def traced(
    world: World,
    name: str,
    folder: Path | None,
    largest: int = LARGEST,
    clock: Callable[[], int] = time.perf_counter_ns,
    pause: float = 0.0,
    graph: Topology | None = None,
    **other: Any,
) -> DistributedOptimizer:
    """``STEPS`` steps by a row of the table, with ``other`` options, of which rank 0 writes the trace.

    Rank 1 is late with every message by ``pause`` seconds.
    """
    row, model = TABLE[name], net()
    rule = row.rule(**other)
    network = Network(world.transport, graph) if graph else network_of(world, rule)
    started = start_trace(network, Recorder(clock, largest))
    local = LOCALS[row.locals[0]](model.parameters())
    optimizer = DistributedOptimizer(local, model, rule, network, steps_per_epoch=STEPS_PER_EPOCH)
    meter = Meter(optimizer)
    for step in range(1, STEPS + 1):
        optimizer.zero_grad()
        with meter.phase("forward_backward"):
            loss_of(model, world.rank, step).backward()
        time.sleep(pause * (world.rank == 1))
        optimizer.step()
    with meter.phase("evaluate"):
        world.transport.barrier()
    write_trace(network, started, Folder(folder) if world.rank == 0 and folder else None)
    return optimizer


@dataclass(frozen=True)
class Trace:
    """The content of a trace; ``ts``, ``dur`` and ``end`` of an event in whole nanoseconds."""

    events: list[dict[str, Any]]
    ranks: list[dict[str, Any]]

    @classmethod
    def read(cls, folder: Path) -> Trace:
        with gzip.open(folder / FILE, "rt", encoding="utf-8") as file:
            content = json.load(file)
        for event in content["traceEvents"]:
            event["ts"] = round(event["ts"] * 1000)
            event["dur"] = round(event.get("dur", 0) * 1000)
            event["end"] = event["ts"] + event["dur"]
        return cls(content["traceEvents"], content["otherData"]["ranks"])

    def of(self, phase: str, rank: int | None = None, *names: str) -> list[dict[str, Any]]:
        """The events of one phase ("X": spans), of one rank, of some names."""
        return [
            event
            for event in self.events
            if event["ph"] == phase and rank in (None, event["tid"]) and (not names or event["name"] in names)
        ]

    def arrows(self) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        """Where each message was posted, and where it was waited for, the spans of both; every end has its other."""
        starts = {event["id"]: self._around(event, "exchange post") for event in self.of("s")}
        ends = {event["id"]: self._around(event, "exchange wait") for event in self.of("f")}
        assert starts.keys() == ends.keys()
        assert len(starts) == len(self.of("s")) == len(self.of("f"))
        for event in self.of("f"):
            assert event["bp"] == "e", "bound to the span around it, not to the next one"
            assert event["ts"] == max(ends[event["id"]]["ts"], ends[event["id"]]["end"] - 1)
        return [(starts[one], ends[one]) for one in starts]

    def _around(self, event: dict[str, Any], name: str) -> dict[str, Any]:
        (span,) = [
            one
            for one in self.of("X", event["tid"], name)
            if one["ts"] <= event["ts"] <= max(one["ts"], one["end"] - 1)
        ]
        return span


def refuse_overlaps(trace: Trace, rank: int) -> None:
    """The spans of one rank lie beside or inside each other, in the order of their starts, outer ones first."""
    around: list[int] = []  # ends of the spans that the next one may lie in
    before = None
    for span in trace.of("X", rank):
        assert before is None or span["ts"] >= before, "sorted"
        before = span["ts"]
        while around and around[-1] <= span["ts"]:
            around.pop()
        assert not around or span["end"] <= around[-1], f"{span} reaches out of the one around it"
        around.append(span["end"])
