"""The folder of a run: what was asked for, what was measured, and what came out."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mpidec.communicator import Network
from mpidec.errors import UserError
from mpidec.train.config import Config
from mpidec.version import __version__, installed


class RunFolder:
    """``config.yaml``, a line of ``metrics.jsonl`` for each epoch, and ``summary.json``, written by rank 0 alone."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, config: Config, network: Network) -> RunFolder:
        """Make the folder and write ``config.yaml``. Raises ``UserError`` where it is in use or cannot be written."""
        parts = (config.algorithm, config.compressor, network.topology.name, f"n{network.size}")
        name = "-".join(part for part in parts if part)
        path = config.out or Path("runs") / f"{time.strftime('%Y-%m-%d-%H%M%S')}-{name}"
        made = not path.exists()
        with _writing(path):
            path.mkdir(parents=True, exist_ok=True)
            if any(path.iterdir()):
                raise UserError(f"the output folder {path} is not empty: choose another --out, nothing is overwritten")
        folder = cls(path)
        try:
            folder.write_config(config)
        except UserError:
            if made:
                path.rmdir()
            raise
        return folder

    def write_config(self, config: Config) -> None:
        """Every option with its value; ``--config`` reads it again."""
        import yaml

        self._replace("config.yaml", yaml.safe_dump(config.resolved(), sort_keys=False))

    def append(self, metrics: dict[str, Any]) -> None:
        """One more line of ``metrics.jsonl``."""
        with _writing(self.path), open(self.path / "metrics.jsonl", "a", encoding="utf-8") as file:
            file.write(json.dumps(metrics, allow_nan=False) + "\n")

    def write_summary(self, summary: dict[str, Any]) -> None:
        """The whole ``summary.json``, in place of an earlier one."""
        self._replace("summary.json", json.dumps(summary, indent=2, allow_nan=False) + "\n")

    def _replace(self, name: str, text: str) -> None:
        """Never half a file, whenever the process is killed."""
        temporary = self.path / f".{name}.partial"
        with _writing(self.path):
            try:
                with open(temporary, "w", encoding="utf-8") as file:
                    file.write(text)
                    file.flush()
                    os.fsync(file.fileno())
                temporary.replace(self.path / name)
            except OSError:
                temporary.unlink(missing_ok=True)
                raise


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(f"the output folder {path} cannot be written: {error.strerror}") from None


def summarize(
    config: Config, network: Network, status: str, last: dict[str, Any], digest: str | None
) -> dict[str, Any]:
    """The content of ``summary.json``: ``last`` holds the metrics of the last finished epoch.

    ``steps_per_second`` leaves the evaluation out; ``bytes_sent_per_rank`` and ``bytes_per_step`` are means over the
    ranks.
    """
    steps, seconds = last.get("step", 0), last.get("seconds", 0.0)
    training = seconds - last.get("phases", {}).get("evaluate", 0.0)
    sent = last.get("bytes_sent", 0)
    return {
        "status": status,
        "algorithm": config.algorithm,
        "compressor": config.compressor,
        "topology": network.topology.name,
        "ranks": network.size,
        "steps": steps,
        "epochs": last.get("epoch", 0),
        "test_accuracy": last.get("test_accuracy"),
        "test_accuracy_local": last.get("test_accuracy_local"),
        "train_loss": last.get("train_loss"),
        "consensus_distance": last.get("consensus_distance"),
        "bytes_sent_per_rank": sent,
        "bytes_per_step": sent / steps if steps else 0,
        "seconds": seconds,
        "steps_per_second": steps / training if training else 0.0,
        "phases": last.get("phases", {}),
        "parameters_digest": digest,
        "collectives": network.collectives.name if config.central else "none",
        "mpi": network.transport.library,
        "horovod": installed("horovod"),
        "versions": {
            "mpidec": __version__,
            "python": platform.python_version(),
            **{package: installed(package) for package in ("torch", "numpy", "mpi4py")},
        },
    }
