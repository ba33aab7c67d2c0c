"""The folder of a run: what was asked for, what was measured, and what came out."""

from __future__ import annotations

import json
import platform
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mpidec.communicator import Network
from mpidec.errors import UserError
from mpidec.folder import Folder, writing
from mpidec.train.checkpoint.layout import point_at
from mpidec.train.checks import changed
from mpidec.train.config import Config
from mpidec.train.yamlfile import read
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
    def open(
        cls, config: Config, site: Site, resumed: Path | None, checkpoint: Path | None, last: dict[str, Any]
    ) -> RunFolder:
        """The folder of a new run, or of the one that is ``resumed``.

        ``checkpoint``: where that goes on, after the metrics ``last``.
        Under ``--resume auto`` a run that ended before its first checkpoint begins anew in its folder.
        """
        if resumed is None and config.resume == "auto" and config.out is not None:
            resumed = config.out if cls._begun_before(config, config.out / "config.yaml") else None
        if resumed is None:
            return cls.create(config, site)
        folder = cls(resumed)
        if checkpoint is not None:
            # Before later metrics are dropped: whoever resumes this run from now on goes on from here.
            with writing(checkpoint.parent):
                point_at(checkpoint)
        folder.forget_metrics_after(last.get("epoch", 0))
        folder.write_config(config)
        return folder

    @staticmethod
    def _begun_before(config: Config, path: Path) -> bool:
        try:
            saved = read(path)
        except UserError:
            return False
        if difference := changed(config, saved):
            raise UserError(f"the run in {path.parent} was begun with {difference}: take the same, or another --out")
        return True

    @classmethod
    def create(cls, config: Config, site: Site) -> RunFolder:
        """Make the folder and write ``config.yaml``. Raises ``UserError`` where it is in use or cannot be written."""
        parts = (config.algorithm, config.compressor, site.topology, f"n{site.ranks}")
        with cls.filled(config.out, "-".join(part for part in parts if part)) as folder:
            folder.write_config(config)
        return folder

    def write_config(self, config: Config) -> None:
        """Every option with its value; ``--config`` reads it again."""
        import yaml

        self.replace("config.yaml", yaml.safe_dump(config.resolved(), sort_keys=False))

    def write_labels(self, counts: list[list[int]] | None) -> None:
        """How many training samples of each class the ranks have in the first epoch, a row of counts for each rank."""
        if counts is not None:
            rows = ",\n".join(f"  {json.dumps(row)}" for row in counts)
            self.replace("labels.json", f'{{"ranks": [\n{rows}\n]}}\n')

    def forget_metrics_after(self, epoch: int) -> None:
        """Drop the lines of ``metrics.jsonl`` that a resumed run writes again, and one that was cut short."""
        kept = []
        with writing(self.path):
            path = self.path / "metrics.jsonl"
            for line in path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else []:
                with suppress(ValueError, TypeError, KeyError):
                    if json.loads(line)["epoch"] <= epoch:
                        kept.append(line + "\n")
        self.replace("metrics.jsonl", "".join(kept))

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
        "test_loss": last.get("test_loss"),
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
