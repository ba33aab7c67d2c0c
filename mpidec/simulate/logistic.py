"""Logistic regression by many ranks: objective minus optimum against epochs and against bytes."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from tabulate import tabulate
from torch import Tensor, nn

from mpidec import plots
from mpidec.errors import UserError
from mpidec.folder import Folder
from mpidec.optim.base import Step
from mpidec.rows import Rows
from mpidec.simulate import options
from mpidec.simulate.regression import Optimum, Regression, load, optimum
from mpidec.simulate.settings import Setting, labels, refuse_too_many, settings
from mpidec.topology import Topology
from mpidec.train import build, local
from mpidec.train.config import Config
from mpidec.train.data.partition import parts
from mpidec.train.data.shards import Shards
from mpidec.train.names import Partition

POINTS = 100  # of a line, about: each costs a pass over all samples
POINTS_PER_EPOCH = 4  # at most
GIVEN_UP = 1e6  # times the suboptimality at the start
NOISE = 1e-15  # what f in float64 cannot tell apart


class Descent:
    """All ranks on their way from zero to the optimum, by the rule, rates and batches of ``config``.

    ``x``: their models, float64 of shape ``(n, p)``. The rate in the epoch e, from 0, is ``config.lr / (1 + decay e)``.
    """

    def __init__(self, config: Config, graph: Topology, problem: Regression, decay: float = 0.0) -> None:
        self.problem, self.decay, self.lr = problem, decay, float(config.lr or 0)
        self.shards = shards(config, graph.size, problem)
        self.comm = Rows(graph, config.seed)
        self.rule = build.rule(config)
        self.x = nn.Parameter(torch.zeros(graph.size, problem.size[1], dtype=torch.float64))
        self.x.grad = torch.zeros_like(self.x)
        self.local = local.made(config, [self.x])
        # Shards differ by a sample where the ranks do not divide the samples, and the mean over the ranks must still be
        # the objective, whose optimum the ranks are measured by.
        shares = parts(self.shards.labels.numpy(), graph.size, self.shards.partition, config.seed, 1)
        self.weights = np.array([len(share) for share in shares]) * (graph.size / problem.size[0])
        self.rule.compressor.bind([problem.size[1]], self.comm.noise)
        with torch.no_grad():
            self.rule.start(self.x, self.comm)

    @torch.no_grad()
    def steps(self, epochs: int) -> Iterator[int]:
        """Run ``epochs`` epochs; after each step, its number from 1."""
        assert self.x.grad is not None, "made with the models"
        models, gradients, t = self.x.numpy(), self.x.grad, 0
        for epoch in range(epochs):
            for group in self.local.param_groups:
                group["lr"] = self.lr / (1 + self.decay * epoch)
            for samples in self.shards.steps_of(epoch + 1):
                t += 1
                gradients.copy_(torch.from_numpy(self.problem.gradients(models, samples.numpy(), self.weights)))
                self.rule.run(self.x, gradients, self.comm, Step(t, t / self.shards.steps), self.local.step)
                yield t

    @property
    def mean(self) -> Tensor:
        """The averaged model, of shape ``(p,)``."""
        return self.x.detach().mean(0)

    @property
    def consensus_distance(self) -> float:
        """The root mean square, over the ranks, of the norm of x_i minus the average."""
        return float((self.x.detach() - self.mean).square().sum(1).mean().sqrt())

    @property
    def bytes_per_rank(self) -> float:
        """Sent so far, in the mean over the ranks."""
        return self.comm.bytes_sent / self.comm.size


def shards(config: Config, ranks: int, problem: Regression) -> Shards:
    """The samples as ``ranks`` share them. Raises ``UserError`` where there are too few."""
    classes = torch.from_numpy(problem.labels).long()
    return Shards(classes, ranks, config.batch_size, config.seed, Partition.parse(config.partition))


def simulate(chosen: options.Logistic) -> None:
    """Run every setting with every learning rate, then show a table and two plots of the best ones."""
    _refuse_out_of_range(chosen)
    plots.refuse_without_matplotlib()
    rates = list(dict.fromkeys(chosen.lr))
    several = [_settings(chosen, rate) for rate in rates][-1]  # every rate is checked before anything runs
    problem = load(chosen.data, chosen.regularization)
    for setting in several:
        shards(setting.config, setting.ranks, problem)
        refuse_too_many(setting.ranks, problem.size[1])
        _ = setting.graph  # each rule looks at its graph before anything runs
    several = [setting.with_gamma([problem.size[1]]) for setting in several]
    best = optimum(problem)
    folder = Folder.make(chosen.out, "logistic")
    common = _described(chosen, problem, best)
    kept = []
    for label, setting in zip(labels(several), several, strict=True):
        runs = []
        for rate in rates:
            config = dataclasses.replace(setting.config, lr=rate)
            descent = Descent(config, setting.graph, problem, chosen.decay)
            record = {"label": label, **setting.described(), "lr": rate, **common, **_run(descent, chosen.epochs, best)}
            print(f"{label}, lr {rate:g}: {_outcome(record)} after {record['epochs'][-1]:g} epochs", flush=True)
            runs.append(record)
        chosen_run = min(runs, key=lambda run: (run["diverged"], run["suboptimality"][-1]))
        for record in runs:
            folder.append("results.jsonl", record | {"kept": record is chosen_run})
        kept.append(chosen_run)
    print("\n" + _table(kept) + f"\n\nresults in {folder.path}", flush=True)
    _plot(kept, folder, len(rates) > 1)


def _refuse_out_of_range(chosen: options.Logistic) -> None:
    """Raise ``UserError`` for what no configuration of a training run checks."""
    if not chosen.lr:
        raise UserError("--lr needs one value at least")
    if not 0 <= chosen.decay < math.inf:
        raise UserError(f"--decay must be at least 0 and finite: got {chosen.decay}")
    if chosen.regularization is not None and not 0 < chosen.regularization < math.inf:
        raise UserError(f"--regularization must be above 0 and finite: got {chosen.regularization}")


def _settings(chosen: options.Logistic, lr: float) -> list[Setting]:
    """Every combination, with the learning rate ``lr`` and nothing in the step but the gradient."""
    shared: dict[str, Any] = {name: getattr(chosen, name) for name in ("partition", "epochs", "batch_size", "seed")}
    return settings(chosen, lr=lr, **shared, momentum=0.0, nesterov=False, weight_decay=0.0)


def _described(chosen: options.Logistic, problem: Regression, best: Optimum) -> dict[str, Any]:
    """What all runs have in common, for their records."""
    samples, features = problem.size
    return {
        "data": chosen.data,
        "samples": samples,
        "features": features,
        "partition": str(Partition.parse(chosen.partition)),
        "regularization": problem.regularization,
        "optimum": best.objective,
        "certificate": best.certificate,
        "batch_size": chosen.batch_size,
        "decay": chosen.decay,
        "seed": chosen.seed,
    }


def _run(descent: Descent, epochs: int, best: Optimum) -> dict[str, Any]:
    """Suboptimality, bytes and consensus distance by epochs; they end where the run diverges."""
    steps, problem = descent.shards.steps, descent.problem
    every = max(math.ceil(epochs * steps / POINTS), math.ceil(steps / POINTS_PER_EPOCH))
    points = [(0.0, problem.objective(descent.mean.numpy()) - best.objective, 0.0, 0.0)]
    diverged, started = False, time.perf_counter()
    with np.errstate(over="ignore", invalid="ignore"):
        for t in descent.steps(epochs):
            if t % every and t != epochs * steps:
                continue
            excess, distance = problem.objective(descent.mean.numpy()) - best.objective, descent.consensus_distance
            diverged = not (excess < GIVEN_UP * points[0][1] and math.isfinite(distance))
            if diverged:
                break
            points.append((t / steps, excess, descent.bytes_per_rank, distance))
    names = ("epochs", "suboptimality", "bytes_per_rank", "consensus_distance")
    lists = {name: list(values) for name, values in zip(names, zip(*points, strict=True), strict=True)}
    return {**lists, "diverged": diverged, "seconds": time.perf_counter() - started}


def _outcome(record: dict[str, Any]) -> str:
    return "diverged" if record["diverged"] else f"{record['suboptimality'][-1]:.2e}"


def _table(records: list[dict[str, Any]]) -> str:
    rows = [
        {
            "setting": record["label"],
            "gamma": f"{record['gamma']:.3g}" if "gamma" in record else "-",
            "lr": f"{record['lr']:g}",
            "objective - optimum": _outcome(record),
            "consensus distance": "-" if record["diverged"] else f"{record['consensus_distance'][-1]:.2e}",
            "bytes a rank": f"{record['bytes_per_rank'][-1]:,.0f}",
        }
        for record in records
    ]
    return tabulate(rows, headers="keys", disable_numparse=True, colalign=("left", *["right"] * 5))


def _plot(records: list[dict[str, Any]], folder: Folder, several_rates: bool) -> None:
    """Nothing is drawn below what the optimum is known to."""
    floor = max(records[0]["certificate"], NOISE)
    with plots.figure(folder, "logistic.png", panels=2) as (by_epochs, by_bytes):
        for number, record in enumerate(records):
            label = record["label"] + f", lr {record['lr']:g}" * several_rates + ", diverged" * record["diverged"]
            known = [place for place, excess in enumerate(record["suboptimality"]) if excess > floor]
            sent = [place for place in known if record["bytes_per_rank"][place] > 0]
            for axes, name, places in ((by_epochs, "epochs", known), (by_bytes, "bytes_per_rank", sent)):
                across = [record[name][place] for place in places]
                excesses = [record["suboptimality"][place] for place in places]
                axes.plot(across, excesses, label=label, **plots.line(number))
        for axes, what in ((by_epochs, "epochs"), (by_bytes, "bytes sent by a rank")):
            axes.set(yscale="log", xlabel=what)
        by_epochs.set_ylabel("objective minus optimum")
        by_bytes.set_ylim(by_epochs.get_ylim())
        # One rank alone sends nothing, and 0 has no place on such a scale.
        if any(max(record["bytes_per_rank"]) > 0 for record in records):
            by_bytes.set_xscale("log")
        plots.legend(by_epochs, len(records))
