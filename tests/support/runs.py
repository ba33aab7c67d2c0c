"""Folders of runs with chosen content, in the form that ``mpidec.train`` writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from mpidec.report.run import Run

CONFIG: dict[str, Any] = {
    "algorithm": "choco",
    "compressor": "sign",
    "topology": "ring",
    "gamma": 0.3,
    "epochs": 3,
    "lr": 0.1,
    "nesterov": True,
    "seed": 0,
    "collectives": "auto",
}
VERSIONS = {"mpidec": "0.1.0", "torch": "2.13.0"}


def line(epoch: int, **changes: Any) -> dict[str, Any]:
    """The metrics of an epoch of 10 steps, 1000 bytes and a second; better with every epoch."""
    accuracy = 1 - 0.5**epoch
    return {
        "epoch": epoch,
        "step": 10 * epoch,
        "lr": 0.1,
        "train_loss": 1 / epoch,
        "test_accuracy": accuracy,
        "test_accuracy_local": {"mean": accuracy - 0.1, "min": accuracy - 0.2, "max": accuracy - 0.05},
        "consensus_distance": 0.5,
        "bytes_sent": 1000 * epoch,
        "seconds": float(epoch),
        "phases": {"exchange": 0.6 * epoch, "evaluate": 0.2 * epoch},
        **changes,
    }


def summary(**changes: Any) -> dict[str, Any]:
    """The part of a summary that a report reads."""
    return {
        "status": "completed",
        "ranks": 4,
        "collectives": "none",
        "mpi": "Open MPI",
        "versions": VERSIONS,
        **changes,
    }


def write_run(
    path: Path,
    config: dict[str, Any] | None = None,
    lines: list[dict[str, Any]] | None = None,
    outcome: dict[str, Any] | None = None,
) -> Path:
    """A run in the new folder ``path``; ``config`` and ``outcome`` change what it otherwise has."""
    path.mkdir()
    (path / "config.yaml").write_text(yaml.safe_dump({**CONFIG, **(config or {})}, sort_keys=False))
    records = [line(epoch) for epoch in (1, 2, 3)] if lines is None else lines
    (path / "metrics.jsonl").write_text("".join(json.dumps(one) + "\n" for one in records))
    (path / "summary.json").write_text(json.dumps(summary(**(outcome or {}))))
    return path


def run(path: Path, **content: Any) -> Run:
    """The run that ``write_run`` writes, read again."""
    return Run.read(write_run(path, **content))
