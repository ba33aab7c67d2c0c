"""How fast ranks agree on their mean: error against rounds and against bytes, with what theory promises beside it."""

from __future__ import annotations

import math
import time
from typing import Any

import torch
from tabulate import tabulate

from mpidec import plots
from mpidec.consensus.problem import Consensus
from mpidec.consensus.theory import Guarantee
from mpidec.errors import UserError
from mpidec.folder import Folder
from mpidec.names import canonical
from mpidec.optim import entry
from mpidec.simulate import options
from mpidec.simulate.settings import Setting, labels, refuse_too_many, settings
from mpidec.train import build
from mpidec.train.names import DTYPES

POINTS = 300  # of a line, at most
GIVEN_UP = 1e6  # times the error at the start


def simulate(chosen: options.Consensus) -> None:
    """Run every setting, then show a table and two plots."""
    for name, value in (("dim", chosen.dim), ("rounds", chosen.rounds)):
        if value < 1:
            raise UserError(f"--{name} must be at least 1: got {value}")
    dtype = getattr(torch, canonical("dtype", chosen.dtype, DTYPES))
    several = settings(chosen, fits=lambda name: not entry(name).central, seed=chosen.seed)
    plots.refuse_without_matplotlib()
    for setting in several:
        refuse_too_many(setting.ranks, chosen.dim)
        _ = setting.graph  # each rule looks at its graph before anything runs
    several = [setting.with_gamma([chosen.dim]) for setting in several]
    folder = Folder.make(chosen.out, "consensus")
    records = []
    for label, setting in zip(labels(several), several, strict=True):
        problem = Consensus(build.rule(setting.config), setting.graph, [chosen.dim], chosen.seed, dtype=dtype)
        record = {"label": label, **setting.described(), "dim": chosen.dim, "dtype": chosen.dtype}
        record |= _run(problem, chosen.rounds) | _theory(setting, problem)
        folder.append("results.jsonl", record)
        records.append(record)
        print(f"{label}: error {record['error'][-1]:.2e} after {record['rounds'][-1]} rounds", flush=True)
    print("\n" + _table(records) + f"\n\nresults in {folder.path}", flush=True)
    _plot(records, folder)


def _run(problem: Consensus, rounds: int) -> dict[str, Any]:
    """The error by rounds and by bytes, and the seconds that the rounds alone took."""
    numbers, errors, sent, seconds = [0], [problem.error], [0.0], 0.0
    every = math.ceil(rounds / POINTS)
    started = time.perf_counter()
    for t in problem.rounds(rounds):
        if t % every and t != rounds:
            continue
        seconds += time.perf_counter() - started
        error = problem.error
        numbers.append(t)
        errors.append(error)
        sent.append(problem.bytes_per_rank)
        if not error < GIVEN_UP:
            errors[-1] = GIVEN_UP
            break
        started = time.perf_counter()
    return {
        "rounds": numbers,
        "error": errors,
        "bytes_per_rank": sent,
        "diverged": errors[-1] == GIVEN_UP,
        "seconds": seconds,
        "microseconds_per_rank_and_round": seconds / numbers[-1] / problem.comm.size * 1e6,
    }


def _theory(setting: Setting, problem: Consensus) -> dict[str, Any]:
    """What is proved: of exact averaging, and of CHOCO with the gamma of the theorem, whatever the gamma here."""
    graph = problem.comm.topology
    promise = Guarantee.of(build.rule(setting.config), graph, [problem.x.shape[1]])
    found = {"spectral_gap": graph.spectral_gap}
    return found | ({"guaranteed_gamma": promise.gamma, "guaranteed_rate": promise.rate} if promise else {})


def _table(records: list[dict[str, Any]]) -> str:
    rows = [
        {
            "setting": record["label"],
            "gamma": f"{record['gamma']:.3g}" if "gamma" in record else "-",
            "error": "diverged" if record["diverged"] else f"{record['error'][-1]:.2e}",
            "bytes a rank": f"{record['bytes_per_rank'][-1]:,.0f}",
            "factor a round": f"{_observed(record):.4f}",
            "guaranteed": f"{record['guaranteed_rate']:.4f}" if "guaranteed_rate" in record else "-",
            "us a rank and round": f"{record['microseconds_per_rank_and_round']:.1f}",
        }
        for record in records
    ]
    return tabulate(rows, headers="keys", disable_numparse=True, colalign=("left", *["right"] * 6))


def _observed(record: dict[str, Any]) -> float:
    """The factor by which the error shrank a round, in the mean over the second half of the rounds."""
    rounds, errors = record["rounds"], record["error"]
    half = len(rounds) // 2
    if errors[half] == 0 or rounds[-1] == rounds[half]:
        return 0.0
    return float((errors[-1] / errors[half]) ** (1 / (rounds[-1] - rounds[half])))


def _plot(records: list[dict[str, Any]], folder: Folder) -> None:
    seen = [value for record in records for value in record["error"] if value > 0]
    lowest, highest = min(seen, default=1.0), max(seen, default=1.0)
    with plots.figure(folder, "consensus.png", panels=2) as (by_rounds, by_bytes):
        for number, record in enumerate(records):
            style = plots.line(number)
            by_rounds.plot(record["rounds"], record["error"], label=record["label"], **style)
            by_bytes.plot(record["bytes_per_rank"][1:], record["error"][1:], label=record["label"], **style)
            if "guaranteed_rate" in record:
                bound = [record["guaranteed_rate"] ** t for t in record["rounds"]]
                by_rounds.plot(record["rounds"], bound, color=style["color"], linewidth=0.7, linestyle=(0, (1, 3)))
        by_rounds.plot([], [], color="#555555", linewidth=0.7, linestyle=(0, (1, 3)), label="slope that is guaranteed")
        for axes, what in ((by_rounds, "rounds"), (by_bytes, "bytes sent by a rank")):
            axes.set(xlabel=what)
            if seen:  # one rank alone has no distance
                axes.set(yscale="log", ylim=(max(lowest / 3, 1e-16), min(3 * highest, 1e2)))
        by_rounds.set_ylabel("distance to the mean, start = 1")
        if any(record["bytes_per_rank"][-1] > 0 for record in records):
            by_bytes.set_xscale("log")
        plots.legend(by_rounds, len(records) + 1)
