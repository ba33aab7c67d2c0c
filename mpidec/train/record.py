"""The folder of a run: what was asked for, what was measured, and what came out."""

from __future__ import annotations

import json
import platform
from dataclasses import dataclass
from typing import Any

from mpidec.communicator import Network
from mpidec.errors import UserError
from mpidec.folder import Folder
from mpidec.train.config import Config
from mpidec.version import __version__, installed


@dataclass(frozen=True)
class Site:
    """Where ranks train: how many, on which graph, and what sums and carries their messages."""

    ranks: int
    topology: str
    collectives: str
    mpi: str

    @classmethod
    def of(cls, network: Network, config: Config) -> Site:
        """A real job."""
        collectives = network.collectives.name if config.central else "none"
        return cls(network.size, network.topology.name, collectives, network.transport.library)


class RunFolder(Folder):
    """``config.yaml``, a line of ``metrics.jsonl`` for each epoch, and ``summary.json``, written by rank 0 alone."""

    @classmethod
    def create(cls, config: Config, site: Site) -> RunFolder:
        """Make the folder and write ``config.yaml``. Raises ``UserError`` where it is in use or cannot be written."""
        parts = (config.algorithm, config.compressor, site.topology, f"n{site.ranks}")
        made = config.out is None or not config.out.exists()
        folder = cls.make(config.out, "-".join(part for part in parts if part))
        try:
            folder.write_config(config)
        except UserError:
            if made:
                folder.path.rmdir()
            raise
        return folder

    def write_config(self, config: Config) -> None:
        """Every option with its value; ``--config`` reads it again."""
        import yaml

        self.replace("config.yaml", yaml.safe_dump(config.resolved(), sort_keys=False))

    def append_metrics(self, metrics: dict[str, Any]) -> None:
        """One more line of ``metrics.jsonl``."""
        self.append("metrics.jsonl", metrics)

    def write_summary(self, summary: dict[str, Any]) -> None:
        """The whole ``summary.json``, in place of an earlier one."""
        self.replace("summary.json", json.dumps(summary, indent=2, allow_nan=False) + "\n")


def summarize(config: Config, site: Site, status: str, last: dict[str, Any], digest: str | None) -> dict[str, Any]:
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
        "topology": site.topology,
        "ranks": site.ranks,
        "gamma": config.gamma,
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
        "collectives": site.collectives,
        "mpi": site.mpi,
        "horovod": installed("horovod"),
        "versions": {
            "mpidec": __version__,
            "python": platform.python_version(),
            **{package: installed(package) for package in ("torch", "numpy", "mpi4py")},
        },
    }
