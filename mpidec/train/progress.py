"""What rank 0 shows: a bar on a terminal, plain lines elsewhere, and a short table at the end."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any

from tabulate import tabulate
from tqdm import tqdm

from mpidec.errors import NonFiniteError, UserError
from mpidec.launcher import launched
from mpidec.train.config import Config
from mpidec.train.record import RunFolder, Site, summarize

if TYPE_CHECKING:
    from mpidec.train.tensorboard import TensorBoard


class Progress:
    """Shows and records the epochs of a run on rank 0, where there is a ``folder``; silent on all others."""

    def __init__(
        self,
        config: Config,
        site: Site,
        folder: RunFolder | None,
        steps_per_epoch: int,
        behind: int = 0,
        last: dict[str, Any] | None = None,
    ) -> None:
        """``behind``: the steps that a resumed run has behind it; ``last``: its metrics of the last whole epoch."""
        self._config, self._site, self._folder, self._last = config, site, folder, last or {}
        self._behind = behind
        self._board: TensorBoard | None = None
        self._terminal = folder is not None and _watched()
        self._bar = tqdm(
            total=config.epochs * steps_per_epoch,
            initial=behind,
            unit="step",
            disable=not self._terminal,
            dynamic_ncols=True,
            leave=False,
        )

    def __enter__(self) -> Progress:
        if self._folder:
            if self._config.tensorboard:
                from mpidec.train.tensorboard import TensorBoard

                self._board = TensorBoard(self._folder.path, self._behind)
            config, site = self._config, self._site
            sums = f", sums by {site.collectives}" if config.central else ""
            gamma = f"gamma {config.gamma:.3g}" if isinstance(config.gamma, float) else None
            what = ", ".join(filter(None, (config.algorithm, config.compressor, gamma, site.topology)))
            print(
                f"{what} over {site.ranks} ranks{sums}; "
                f"{config.model} on {config.data}, {config.epochs} epoch{'s' * (config.epochs > 1)}; "
                f"results in {self._folder.path}",
                flush=True,
            )
            if self._behind:
                print(f"goes on after {self._behind:,} steps", flush=True)
            self._summary("running")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.close()
        if self._board:
            self._board.close()
        if self._folder and error is not None:
            with suppress(UserError):  # the first error counts, not that it cannot be written down
                self._summary("diverged" if isinstance(error, NonFiniteError) else "failed")

    def step(self) -> None:
        """One more step is done."""
        self._bar.update()

    def epoch(self, metrics: dict[str, Any]) -> None:
        """One more epoch is done: a line on the screen and a line in ``metrics.jsonl``."""
        self._last = metrics
        if not self._folder:
            return
        self._folder.append_metrics(metrics)
        if self._board:
            self._board.epoch(metrics)
        summary = self._summary("running")
        line = (
            f"epoch {metrics['epoch']:>3}/{self._config.epochs}  loss {metrics['train_loss']:.4f}  "
            f"accuracy {metrics['test_accuracy']:.2%}  consensus {metrics['consensus_distance']:.3g}  "
            f"{summary['bytes_per_step']:,.0f} bytes/step  {summary['steps_per_second']:.1f} steps/s"
        )
        if self._terminal:
            self._bar.set_postfix_str(line[line.index("loss") :])
            self._bar.write(line, file=sys.stderr)
        else:
            print(line, flush=True)

    def finish(self, digest: str) -> None:
        """The run is complete, or has come as far as it should: the summary, and a table of it."""
        self._bar.close()
        if not self._folder:
            return
        complete = self._last["epoch"] >= self._config.epochs
        table = _table(self._summary("completed" if complete else "stopped", digest))
        go_on = "" if complete else f"; go on with --resume {self._folder.path}"
        print(f"\n{table}\n\nresults in {self._folder.path}{go_on}", flush=True)

    def _summary(self, status: str, digest: str | None = None) -> dict[str, Any]:
        assert self._folder is not None
        summary = summarize(self._config, self._site, status, self._last, digest)
        self._folder.write_summary(summary)
        return summary


def _watched() -> bool:
    """Whether somebody watches: on a terminal of this process, or of the launcher, which passes on what it is sent."""
    if sys.stderr.isatty() or launched() is None:
        return sys.stderr.isatty()
    try:
        return os.readlink(f"/proc/{os.getppid()}/fd/2").startswith(("/dev/pts/", "/dev/tty"))
    except OSError:
        return False


def _table(summary: dict[str, Any]) -> str:
    local, phases = summary["test_accuracy_local"], summary["phases"]
    total = sum(phases.values()) or 1.0
    shares = ", ".join(f"{name.replace('_', ' ')} {seconds / total:.0%}" for name, seconds in phases.items())
    rows = [
        ("accuracy, averaged model", f"{summary['test_accuracy']:.2%}"),
        ("accuracy, each rank's own", f"{local['mean']:.2%} ({local['min']:.2%} to {local['max']:.2%})"),
        ("test loss, averaged model", f"{summary['test_loss']:.4f}"),
        ("training loss, last epoch", f"{summary['train_loss']:.4f}"),
        ("consensus distance", f"{summary['consensus_distance']:.3g}"),
        ("sent per rank and step", f"{summary['bytes_per_step']:,.0f} bytes"),
        ("sent per rank in all", f"{summary['bytes_sent_per_rank']:,} bytes"),
        ("time", f"{summary['seconds']:.1f} s, {summary['steps_per_second']:.1f} steps/s"),
        ("time by phase", shares),
    ]
    return tabulate(rows, tablefmt="plain")
