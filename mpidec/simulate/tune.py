"""The search for gamma, with what it tried: a table and a plot."""

from __future__ import annotations

import math
from typing import Any

from tabulate import tabulate

from mpidec import plots
from mpidec.consensus.gamma import BURST, Search, Trial, search
from mpidec.errors import UserError
from mpidec.folder import Folder
from mpidec.simulate import options
from mpidec.simulate.settings import graph_of
from mpidec.train import build
from mpidec.train.config import Config


def simulate(chosen: options.Tune) -> None:
    """Search, then show what was tried and what to take."""
    if not 0.001 <= chosen.margin <= 1:
        raise UserError(f"--margin is a share of the largest stable value, 0.001 to 1: got {chosen.margin}")
    if not chosen.sizes or min(chosen.sizes) < 1:
        raise UserError("--sizes are the entries of each layer, at least one layer of at least one entry")
    given = {name: getattr(chosen, name) for name in ("algorithm", "topology", "compressor", "ratio", "bits", "seed")}
    config = Config(**given, gamma="auto")
    graph = graph_of(config, chosen.ranks)
    plots.refuse_without_matplotlib()
    found = search(build.rule_with(config), graph, chosen.sizes, chosen.seed, chosen.margin)
    folder = Folder.make(chosen.out, "tune")
    for trial in found.trials:
        folder.append("results.jsonl", {**given, **_record(found, trial)})
    print(_table(found) + "\n\n" + _verdict(found, chosen) + f"\n\nresults in {folder.path}", flush=True)
    _plot(found, chosen, folder)


def _record(found: Search, trial: Trial) -> dict[str, Any]:
    """One trial; a spread is null where the trial was given up."""
    spreads = {name: value for name in ("halfway", "end") if math.isfinite(value := getattr(trial, name))}
    return {
        "gamma": trial.gamma,
        "halfway": spreads.get("halfway"),
        "end": spreads.get("end"),
        "stable": found.stable(trial),
        "rounds": found.rounds,
        "sizes": list(found.sizes),
        "chosen_gamma": found.gamma,
        "guaranteed_gamma": found.guaranteed,
    }


def _table(found: Search) -> str:
    rows = [
        {
            "gamma": f"{trial.gamma:.4g}",
            "second quarter": _shown(trial.halfway),
            "last quarter": _shown(trial.end),
            "stable": "yes" if found.stable(trial) else "no",
        }
        for trial in found.trials
    ]
    return tabulate(rows, headers="keys", disable_numparse=True, colalign=("right", "right", "right", "left"))


def _shown(spread: float) -> str:
    return f"{spread:.3g}" if math.isfinite(spread) else "grows"


def _verdict(found: Search, chosen: options.Tune) -> str:
    correction = f" x {found.correction:.3g} for layers that were shortened" if found.correction < 0.995 else ""
    return "\n".join(
        [
            f"mean spread in a quarter of {found.rounds} rounds: the distance of {chosen.ranks} ranks from their mean, "
            f"start = 1, under new noise in every round; layers of {', '.join(map(str, found.sizes))} entries",
            f"gamma {found.gamma:.3g} = {found.margin:g} x {found.largest:.4g}, the largest stable{correction}",
            "nothing is proved for this rule and compressor"
            if found.guaranteed is None
            else f"the theorem guarantees {found.guaranteed:.2g}, {found.gamma / found.guaranteed:,.0f} times less",
        ]
    )


def _plot(found: Search, chosen: options.Tune, folder: Folder) -> None:
    shown = [trial for trial in found.trials if math.isfinite(trial.end)]
    with plots.figure(folder, "tune.png") as (axes,):
        axes.plot([t.gamma for t in shown], [t.end for t in shown], "o-", color=plots.COLORS[0], markersize=4)
        given_up = [t.gamma for t in found.trials if not math.isfinite(t.end)]
        axes.plot(given_up, [BURST] * len(given_up), "x", color=plots.COLORS[1], label="grows without end")
        axes.axvline(found.largest, color=plots.COLORS[7], linestyle="--", label=f"largest stable, {found.largest:.3g}")
        axes.axvline(found.gamma, color=plots.COLORS[2], label=f"chosen, {found.gamma:.3g}")
        axes.set(
            xscale="log",
            yscale="log" if any(trial.end > 0 for trial in shown) else "linear",
            xlabel="gamma",
            ylabel=f"spread in the last quarter of {found.rounds} rounds, start = 1",
        )
        options_ = ", ".join(
            filter(None, (chosen.algorithm, chosen.compressor, f"{chosen.topology} of {chosen.ranks}"))
        )
        axes.set_title(options_, fontsize=9)
        axes.legend(frameon=False, fontsize=8)
