"""Tables of runs: one row for each quantity, one value for each run, the best of them marked."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from mpidec.report.labels import differing
from mpidec.report.run import Run
from mpidec.report.units import DASH, of_bytes, of_count, of_number, of_seconds, of_setting, of_share, readable

Value = Callable[[Run], float]
Form = Callable[[float], str]


@dataclass(frozen=True)
class Row:
    """A quantity with its value for each run; ``best`` says which values are marked."""

    name: str
    values: list[str]
    best: list[bool]

    @property
    def cells(self) -> list[tuple[str, bool]]:
        """Values, each with its mark."""
        return list(zip(self.values, self.best, strict=True))


# Name, value, form, and whether the largest (max) or the least (min) is best.
Quantity = tuple[str, Value, Form, Any]
QUALITY: tuple[Quantity, ...] = (
    ("test accuracy, averaged model", lambda run: run.last("test_accuracy"), of_share, max),
    ("test accuracy, mean of the ranks", lambda run: _local(run, "test_accuracy_local", 0), of_share, max),
    ("test accuracy, worst rank", lambda run: _local(run, "test_accuracy_local", 1), of_share, max),
    ("test accuracy, best rank", lambda run: _local(run, "test_accuracy_local", 2), of_share, max),
    ("test loss, averaged model", lambda run: run.last("test_loss"), of_number, min),
    ("training loss, last epoch", lambda run: run.last("train_loss"), of_number, min),
    ("training loss, worst rank", lambda run: _local(run, "train_loss_local", 2), of_number, min),
    ("consensus distance", lambda run: run.last("consensus_distance"), of_number, min),
)
COST: tuple[Quantity, ...] = (
    ("sent per rank and step", lambda run: _per_step(run), of_bytes, min),
    ("sent per rank", lambda run: run.last("bytes_sent"), of_bytes, min),
    ("sent by all ranks", lambda run: run.last("bytes_sent") * _ranks(run), of_bytes, min),
    ("time", lambda run: run.last("seconds"), of_seconds, min),
    ("steps", lambda run: run.last("step"), of_count, None),
    ("steps per second", lambda run: _speed(run), of_number, max),
)


def final_numbers(runs: Sequence[Run]) -> list[list[Row]]:
    """The numbers after the last epoch, in groups: quality; cost and status; versions where they differ.

    Without quantities that no run has. Only completed runs can be best, and only where their values differ.
    """
    quality, cost = ([_row(runs, *quantity) for quantity in group] for group in (QUALITY, COST))
    found = [[row for row in rows if set(row.values) != {DASH}] for rows in (quality, cost)]
    found[1].append(_plain("status", [run.status for run in runs]))
    return [rows for rows in (*found, versions(runs)) if rows]


def settings(runs: Sequence[Run]) -> list[Row]:
    """The settings that differ."""
    return [_plain(name.replace("_", " "), values) for name, values in differing(runs).items()]


def versions(runs: Sequence[Run]) -> list[Row]:
    """What software the runs used, as far as it differs."""
    found = [software(run) for run in runs]
    names = dict.fromkeys(name for one in found for name in one)
    shown = {name: [of_setting(one.get(name)) for one in found] for name in names}
    return [_plain(name, values) for name, values in shown.items() if len(set(values)) > 1]


def software(run: Run) -> dict[str, str]:
    """Versions by package, and the MPI."""
    versions = run.summary.get("versions")
    named = {"MPI": run.summary.get("mpi"), "horovod": run.summary.get("horovod")}
    packages = versions if isinstance(versions, dict) else {}
    return {readable(name): readable(value) for name, value in (packages | named).items() if value is not None}


def phases(runs: Sequence[Run]) -> list[Row]:
    """Seconds a step by phase: the mean over the ranks and, where it is known, that of the slowest rank."""
    means = [run.per_step("phases") for run in runs]
    slowest = [run.per_step("phases_max")[1] for run in runs]
    names = dict.fromkeys(name for _, one in means for name in one)
    rows = []
    for name in names:
        values = []
        for (_, mean), most in zip(means, slowest, strict=True):
            shown = of_seconds(mean.get(name, math.nan))
            values.append(f"{shown} ({of_seconds(most[name])})" if name in most else shown)
        rows.append(_plain(name.replace("_", " "), values))
    return [*rows, _plain("by the clock", [of_seconds(clock) for clock, _ in means])] if rows else []


def _plain(name: str, values: list[str]) -> Row:
    return Row(name, values, [False] * len(values))


def _row(runs: Sequence[Run], name: str, value: Value, form: Form, best: Any) -> Row:
    numbers = [value(run) for run in runs]
    shown = [form(number) for number in numbers]
    rivals = [number for run, number in zip(runs, numbers, strict=True) if run.completed and math.isfinite(number)]
    if best is None or len({form(number) for number in rivals}) < 2:
        return _plain(name, shown)
    winner = form(best(rivals))
    return Row(name, shown, [run.completed and text == winner for run, text in zip(runs, shown, strict=True)])


def _local(run: Run, name: str, part: int) -> float:
    spread = run.spread(name)
    return spread[part][-1] if spread else math.nan


def _ranks(run: Run) -> float:
    ranks = run.summary.get("ranks")
    return float(ranks) if isinstance(ranks, int) else math.nan


def _per_step(run: Run) -> float:
    steps = run.last("step")
    return run.last("bytes_sent") / steps if steps > 0 else math.nan


def _speed(run: Run) -> float:
    """Steps a second outside the evaluation, as in ``summary.json``."""
    if not run.lines:
        return math.nan
    training = run.last("seconds") - (run.lines[-1].get("phases") or {}).get("evaluate", 0.0)
    return run.last("step") / training if training > 0 else math.nan
