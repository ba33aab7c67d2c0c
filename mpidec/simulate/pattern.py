"""Which algorithm survives which compressor: every cell at its best learning rate and gamma, beside what is published.

Published: Koloskova, Lin, Stich and Jaggi 2020, arXiv 1907.09356: test accuracy of ResNet-20 on CIFAR-10, ring of 8.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

from tabulate import tabulate

from mpidec import plots
from mpidec.errors import NonFiniteError, UserError
from mpidec.folder import Folder
from mpidec.simulate import options
from mpidec.simulate.pool import all_done
from mpidec.simulate.settings import graph_of
from mpidec.simulate.training import Training
from mpidec.train import build, data
from mpidec.train.config import Config
from mpidec.train.data.source import Source
from mpidec.transport.solo import Solo

BASELINES = ("allreduce", "dpsgd")
ALGORITHMS = ("choco", "deepsqueeze", "dcd", "ecd")
RATES = (0.03, 0.1, 0.3)
GAMMAS = {"random-k": (0.03, 0.01, 0.003)}  # the others:
USUAL_GAMMAS = (0.3, 0.1, 0.03)
COMPRESSORS: dict[str, dict[str, Any]] = {
    "sign": {"compressor": "sign"},
    "top-1 %": {"compressor": "top-k", "ratio": 0.01},
    "random-1 %": {"compressor": "random-k", "ratio": 0.01},
    "qsgd, 8 bits": {"compressor": "qsgd", "bits": 8},
    "qsgd, 4 bits": {"compressor": "qsgd", "bits": 4},
    "qsgd, 2 bits": {"compressor": "qsgd", "bits": 2},
}
# Accuracy in %, None where it diverges; what is not there has not been published in this table.
PUBLISHED: dict[tuple[str, str], float | None] = {
    ("allreduce", ""): 92.64,
    ("choco", "sign"): 92.46,
    ("choco", "top-1 %"): 91.73,
    ("choco", "random-1 %"): 91.32,
    ("choco", "qsgd, 4 bits"): 91.92,
    ("dcd", "sign"): 92.40,
    ("dcd", "top-1 %"): 89.79,
    ("dcd", "random-1 %"): None,
    ("dcd", "qsgd, 4 bits"): 23.56,
    ("ecd", "top-1 %"): 17.0,
    ("ecd", "qsgd, 8 bits"): 59.11,
    ("ecd", "qsgd, 4 bits"): None,
    ("ecd", "qsgd, 2 bits"): None,
}
Cell = tuple[str, str]  # an algorithm and a key of COMPRESSORS, or ""


class Job(NamedTuple):
    """One run of a cell."""

    cell: Cell
    config: Config
    ranks: int


def simulate(chosen: options.Pattern) -> None:
    """Run all cells over the grid, then show the best of each beside the published one, and all runs as a file."""
    if chosen.processes is not None and chosen.processes < 1:
        raise UserError(f"--processes must be at least 1: got {chosen.processes}")
    jobs = list(_jobs(chosen))
    for config in {job.cell[0]: job.config for job in jobs}.values():
        graph_of(config, chosen.ranks)  # which refuses what the rule cannot follow
    build.shards(jobs[0].config, data.load(Source(jobs[0].config.data), Solo()), chosen.ranks)
    plots.refuse_without_matplotlib()
    folder = Folder.make(chosen.out, "pattern")
    runs: dict[Cell, list[dict[str, Any]]] = {}
    processes = chosen.processes or len(os.sched_getaffinity(0))
    print(f"{len(jobs)} runs of {chosen.epochs} epochs, {processes} at a time; results in {folder.path}", flush=True)
    with contextlib.closing(all_done(_run, jobs, processes)) as done:
        for job, record in done:
            folder.append("results.jsonl", record)
            runs.setdefault(job.cell, []).append(record)
    best = {cell: max(its, key=lambda run: run["accuracy"] or 0.0) for cell, its in runs.items()}
    print("\n" + _table(best, runs) + f"\n\nresults in {folder.path}", flush=True)
    _plot(best, folder)


def _jobs(chosen: options.Pattern) -> Iterator[Job]:
    cells = [(name, "") for name in BASELINES] + list(itertools.product(ALGORITHMS, COMPRESSORS))
    for (algorithm, compressor), lr in itertools.product(cells, RATES):
        its = COMPRESSORS.get(compressor, {})
        gammas = (
            GAMMAS.get(its.get("compressor", ""), USUAL_GAMMAS) if algorithm in ("choco", "deepsqueeze") else [None]
        )
        for gamma in gammas:
            config = Config(
                algorithm=algorithm,
                topology=chosen.topology,
                gamma=gamma,
                lr=lr,
                epochs=chosen.epochs,
                partition=chosen.partition,
                seed=chosen.seed,
                **its,
            )
            yield Job((algorithm, compressor), config, chosen.ranks)


def _run(job: Job) -> dict[str, Any]:
    """Train one configuration; the accuracy, in %, is of the averaged model, and null where it diverged."""
    warnings.simplefilter("ignore")  # that these pairs are unwise is what is shown
    config = job.config
    training = Training(config, data.load(Source(config.data), Solo()), graph_of(config, job.ranks))
    accuracy = train_loss = None
    with contextlib.suppress(NonFiniteError):
        for epoch in range(1, config.epochs + 1):
            losses = [float(loss.mean()) for loss in training.epoch(epoch)]
        accuracy, train_loss = 100 * training.evaluate().test_accuracy, sum(losses) / len(losses)
    names = ("algorithm", "compressor", "ratio", "bits", "gamma", "lr", "epochs", "partition", "seed")
    return {
        **{name: getattr(config, name) for name in names},
        "ranks": job.ranks,
        "accuracy": accuracy,
        "train_loss": train_loss,
        "diverged": accuracy is None,
        "bytes_per_step": training.comm.bytes_sent / max(1, training.steps) / job.ranks,
    }


def _table(best: dict[Cell, dict[str, Any]], runs: dict[Cell, list[dict[str, Any]]]) -> str:
    """A row for each compressor; beside each accuracy how many of its runs diverged, and the published accuracy."""
    first = [
        f"{name}: {_percent(best[name, '']['accuracy'])} here, {best[name, '']['bytes_per_step']:,.0f} bytes a step"
        for name in BASELINES
    ]
    first[0] += f"; {PUBLISHED['allreduce', '']} published"
    rows = []
    for compressor in COMPRESSORS:
        row = {"compressor": compressor, "bytes a step": f"{best['choco', compressor]['bytes_per_step']:,.0f}"}
        for algorithm in ALGORITHMS:
            cell = algorithm, compressor
            lost = sum(run["diverged"] for run in runs[cell])
            row[algorithm] = _percent(best[cell]["accuracy"]) + (f" ({lost}/{len(runs[cell])})" if lost else "")
            if algorithm != "deepsqueeze":
                row[f"{algorithm} publ."] = _percent(PUBLISHED[cell]) if cell in PUBLISHED else "-"
        rows.append(row)
    aligned = ("left", *["right"] * (len(rows[0]) - 1))
    return "\n".join(
        [
            "accuracy in % of the averaged model, at the learning rate and gamma with the best accuracy on the test "
            "samples; (d/r): d of r runs diverged",
            "; ".join(first),
            "",
            tabulate(rows, headers="keys", disable_numparse=True, colalign=aligned),
        ]
    )


def _percent(accuracy: float | None) -> str:
    return "diverges" if accuracy is None else f"{accuracy:.1f}"


def _plot(best: dict[Cell, dict[str, Any]], folder: Folder) -> None:
    here = {cell: run["accuracy"] for cell, run in best.items()}
    with plots.figure(folder, "pattern.png", panels=2, width=4.6) as panels:
        titles = (
            f"here, all-reduce {_percent(here['allreduce', ''])}",
            f"published, all-reduce {PUBLISHED['allreduce', '']}",
        )
        for axes, title, values in zip(panels, titles, (here, PUBLISHED), strict=True):
            shown = [[values.get((a, c), math.nan) or 0.0 for a in ALGORITHMS] for c in COMPRESSORS]
            axes.imshow(shown, cmap="RdYlGn", vmin=0, vmax=100, alpha=0.6, aspect="auto")
            for (row, c), (column, a) in itertools.product(enumerate(COMPRESSORS), enumerate(ALGORITHMS)):
                text = _percent(values[a, c]) if (a, c) in values else "-"
                axes.text(column, row, text, ha="center", va="center", fontsize=8)
            axes.set_xticks(range(len(ALGORITHMS)), ALGORITHMS)
            axes.set_yticks(range(len(COMPRESSORS)), COMPRESSORS)
            axes.set_title(f"accuracy in %, {title}", fontsize=9)
            axes.grid(False)
