"""Where the time of a step goes: a stacked bar for each run."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mpidec import plots
from mpidec.report.curves import WIDTH, named
from mpidec.report.run import Run
from mpidec.report.units import SECONDS, unit_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Dark to light, told apart in grey and by the colour-blind, and none of the colours of runs.
FILLS = ("#2b3a55", "#4f6d8f", "#7fa1b8", "#b5cbd3", "#d9cdb8", "#bfa27a", "#8c6f4a", "#5c4a35")
ROOM = 0.055  # share of the axis that a number inside a bar needs


def phases(runs: Sequence[Run], labels: Sequence[str]) -> Figure:
    """Time a step by phase, means over the ranks, and a tick where the clock of rank 0 stood."""
    found = [run.per_step("phases") for run in runs]
    names = list(dict.fromkeys(name for _, one in found for name in one))
    longest = max((sum(one.values()) for _, one in found), default=0.0)
    size, unit = unit_of(longest, SECONDS)
    made, (axes,) = plots.canvas(1, 1, WIDTH, 0.36 * len(runs) + 1.15)
    axes.grid(False, axis="y")
    for row, (run, (clock, one)) in enumerate(zip(runs, found, strict=True)):
        _bar(axes, row, [one.get(name, 0.0) / size for name in names], longest / size)
        if clock == clock:
            axes.plot([clock / size] * 2, [row - 0.4, row + 0.4], color="#000000", linewidth=1.2)
        if not one:
            axes.text(0, row, "  nothing measured: " + run.status, fontsize=7, va="center", style="italic")
        # The colour that the run has in the other plots, beside its name.
        axes.plot(
            -0.012,
            row,
            "s",
            color=plots.line(row)["color"],
            markersize=5,
            clip_on=False,
            transform=axes.get_yaxis_transform(),
        )
    shown = [named(run, label) for run, label in zip(runs, labels, strict=True)]
    axes.set_yticks(range(len(runs)), [textwrap.fill(name, 34) for name in shown], fontsize=7.5)
    axes.tick_params(axis="y", length=0, pad=10)
    axes.tick_params(axis="x", labelsize=7)
    axes.set(ylim=(len(runs) - 0.4, -0.6), xlim=(0, None))
    axes.set_xlabel(f"time per step ({unit})", fontsize=8)
    _legend(made, names)
    return made


def _bar(axes: Axes, row: int, lengths: Sequence[float], whole: float) -> None:
    left = 0.0
    for number, length in enumerate(lengths):
        fill = FILLS[number % len(FILLS)]
        axes.barh(row, length, left=left, height=0.62, color=fill, edgecolor="white", linewidth=0.6)
        if whole and length > ROOM * whole:
            color = "white" if _dark(fill) else "#111111"
            axes.text(left + length / 2, row, f"{length:.3g}", fontsize=6.5, ha="center", va="center", color=color)
        left += length


def _legend(figure: Figure, names: Sequence[str]) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Patch | Line2D] = [
        Patch(facecolor=FILLS[number % len(FILLS)], label=name.replace("_", " ")) for number, name in enumerate(names)
    ]
    handles.append(
        Line2D(
            [], [], color="#000000", marker="|", linestyle="none", markersize=8, label="whole step, by rank 0's clock"
        )
    )
    figure.legend(handles=handles, loc="outside lower center", ncols=min(len(handles), 4), frameon=False, fontsize=7.5)


def _dark(color: str) -> bool:
    red, green, blue = (int(color[place : place + 2], 16) for place in (1, 3, 5))
    return 0.299 * red + 0.587 * green + 0.114 * blue < 140
