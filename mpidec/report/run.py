"""A run, read from its folder."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mpidec.errors import UserError
from mpidec.report.lines import read_lines, read_text
from mpidec.train.yamlfile import mapping

Numbers = list[float]

# Options without effect on a run that sums over all ranks, and on one that does not.
WITHOUT_EFFECT = {True: ("topology",), False: ("collectives",)}


@dataclass(frozen=True)
class Run:
    """What a run asked for, measured and came to.

    ``lines`` are the records of ``metrics.jsonl``, one for each finished epoch in rising order; ``remarks`` say what is
    odd about the folder.
    """

    path: Path
    config: dict[str, Any]
    lines: list[dict[str, Any]]
    summary: dict[str, Any]
    remarks: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, path: Path) -> Run:
        """The run in the folder ``path``. Raises ``UserError`` where there is none, or one that cannot be read."""
        if not path.exists():
            raise UserError(f"there is no folder {path}: give the folder of a run of mpidec.train")
        if not path.is_dir():
            raise UserError(f"{path} is a file: give the folder of a run, which holds its config.yaml")
        present = {name for name in ("config.yaml", "metrics.jsonl", "summary.json") if (path / name).exists()}
        if "config.yaml" not in present or len(present) == 1:
            raise UserError(
                f"the folder {path} holds no run: give one that mpidec.train or mpidec.simulate network has written, "
                "with config.yaml, metrics.jsonl and summary.json"
            )
        lines, remarks = read_lines(path / "metrics.jsonl") if "metrics.jsonl" in present else ([], [])
        if "summary.json" not in present:
            remarks.append("there is no summary.json, so ranks, status and versions are unknown")
        if not lines:
            remarks.append("no epoch was finished, so there is nothing to plot")
        summary = _read_summary(path / "summary.json") if "summary.json" in present else {}
        return cls(path, _read_config(path / "config.yaml"), lines, summary, remarks)

    @property
    def central(self) -> bool:
        """Whether the run summed over all ranks, and so used no graph."""
        return self.summary.get("collectives") not in (None, "none")

    @property
    def settings(self) -> dict[str, Any]:
        """What was chosen and had an effect: the number of ranks, then the options by name."""
        ignored = WITHOUT_EFFECT[self.central]
        chosen = {name: value for name, value in self.config.items() if name not in ignored}
        found = {name: self.summary[name] for name in ("ranks", "collectives") if name in self.summary}
        return {"ranks": None} | chosen | {name: value for name, value in found.items() if name not in ignored}

    @property
    def status(self) -> str:
        """``completed``, or what became of the run instead and after how many epochs."""
        found = str(self.summary.get("status", "of unknown status"))
        names = {"running": "unfinished"}  # killed from outside, or still at it
        if not all(math.isfinite(value) for name in ("train_loss", "consensus_distance") for value in self.told(name)):
            found = "diverged"
        if found == "completed":
            return found
        done = f"{self.lines[-1]['epoch']:g}" if self.lines else "0"
        return f"{names.get(found, found)} after {done} of {self.config.get('epochs', '?')} epochs"

    @property
    def completed(self) -> bool:
        """Whether the run came to its end."""
        return self.status == "completed"

    def told(self, name: str) -> Numbers:
        """The values of a metric at the epochs that have one, NaN and infinity among them."""
        return [float(line[name]) for line in self.lines if line.get(name) is not None]

    def column(self, name: str) -> Numbers:
        """A metric at every epoch, NaN where it is missing."""
        return [_number(line.get(name)) for line in self.lines]

    def spread(self, name: str) -> tuple[Numbers, Numbers, Numbers] | None:
        """Mean, least and largest of a metric over the ranks at every epoch, or ``None`` where no epoch has them."""
        found = [line.get(name) or {} for line in self.lines]
        if not any(found):
            return None
        mean, least, most = ([_number(one.get(part)) for one in found] for part in ("mean", "min", "max"))
        return mean, least, most

    def last(self, name: str) -> float:
        """A metric of the last finished epoch, NaN where it is missing."""
        return self.column(name)[-1] if self.lines else math.nan

    def per_step(self, name: str) -> tuple[float, dict[str, float]]:
        """Seconds a step by the clock, and by phase from ``phases`` or ``phases_max``.

        Without the first epoch, in which ranks start up, where there is another one. Empty where nothing was measured.
        """
        if not self.lines:
            return math.nan, {}
        last: dict[str, Any] = self.lines[-1]
        first: dict[str, Any] = self.lines[0] if len(self.lines) > 1 else {}
        steps = last["step"] - first.get("step", 0)
        if steps <= 0:
            return math.nan, {}
        before = first.get(name) or {}
        phases = {
            phase: max(_number(value) - before.get(phase, 0.0), 0.0) / steps
            for phase, value in (last.get(name) or {}).items()
        }
        return (_number(last.get("seconds")) - first.get("seconds", 0.0)) / steps, phases


def refuse_repeated(paths: Sequence[Path]) -> None:
    """Raise ``UserError`` where a folder is given twice, under whatever name."""
    seen: dict[Path, Path] = {}
    for path in paths:
        same = seen.setdefault(path.resolve(), path)
        if same is not path:
            also = f" (also as {same})" if str(same) != str(path) else ""
            raise UserError(f"the run {path} is given twice{also}: name each run once")


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)


def _read_config(path: Path) -> dict[str, Any]:
    content = mapping(read_text(path), path, "the options of a run, one a line")
    return {str(name): value for name, value in content.items()}


def _read_summary(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(read_text(path))
    except ValueError as error:
        raise UserError(f"{path} is no valid JSON: {error}") from None
    if not isinstance(content, dict):
        raise UserError(f"{path} must hold the summary of a run, a JSON object: got {type(content).__name__}")
    return content
