"""The learning curves of runs: metrics against epochs, bytes and seconds, and the spread over the ranks."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mpidec import plots
from mpidec.report.run import Run
from mpidec.report.units import BYTES, of_bytes, of_seconds, unit_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH = 7.1  # inches: the text of an A4 page, so that letters keep their size in print
WIDE = 10.0  # a factor between values above which their axis is logarithmic
NAMES = {
    "train_loss": "training loss",
    "test_loss": "test loss",
    "test_accuracy": "test accuracy",
    "consensus_distance": "consensus distance",
}
SPREADS = ("test_accuracy", "test_loss", "train_loss")  # metrics that may have been measured on each rank
MARKS = {True: ".", False: "x"}  # at the end of a completed run, and of one that is not


def learning(runs: Sequence[Run], labels: Sequence[str]) -> Figure:
    """Losses and accuracy, a row each, against epochs, bytes and seconds."""
    return _grid(runs, labels, ("train_loss", "test_loss", "test_accuracy"), ("epoch", "bytes_sent", "seconds"))


def consensus(runs: Sequence[Run], labels: Sequence[str]) -> Figure:
    """The distance of the ranks from their mean against epochs and bytes."""
    return _grid(runs, labels, ("consensus_distance",), ("epoch", "bytes_sent"))


def spread(runs: Sequence[Run], labels: Sequence[str], metric: str) -> Figure:
    """The ``metric`` of the averaged model, and least, mean and largest over the ranks.

    A panel for each run that has measured it on each rank, of which there is one at least.
    """
    shown = [number for number, run in enumerate(runs) if run.spread(f"{metric}_local")]
    columns = 3 if len(shown) in (3, 5, 6) else min(len(shown), 4)
    rows = math.ceil(len(shown) / columns)
    width = WIDTH if columns > 1 else 0.6 * WIDTH
    made, axes = plots.canvas(rows, columns, width, 1.85 * rows + 0.7, sharex=True, sharey=True)
    for place, one in enumerate(axes):
        one.set_visible(place < len(shown))
        one.tick_params(labelsize=7, labelbottom=place + columns >= len(shown))
        if place % columns == 0:
            one.set_ylabel(NAMES[metric], fontsize=8)
    for one, number in zip(axes, shown, strict=False):
        if len(runs) > 1:
            one.set_title(
                textwrap.fill(named(runs[number], labels[number]), 100 // max(columns, 2)), fontsize=7.5, loc="left"
            )
        _band(one, runs[number], number, metric)
    for one in axes[max(len(shown) - columns, 0) : len(shown)]:
        _horizontal(one, "epoch", [runs[number].column("epoch") for number in shown])
    _vertical(axes[0], metric, [part for run in runs for part in run.spread(f"{metric}_local") or ()])
    _spread_legend(made, metric)
    return made


def named(run: Run, label: str) -> str:
    """The ``label``, with what became of a run that did not complete."""
    return label if run.completed else f"{label} ({run.status})"


def _band(axes: Axes, run: Run, number: int, metric: str) -> None:
    local, epochs, color = run.spread(f"{metric}_local"), run.column("epoch"), plots.line(number)["color"]
    assert local is not None, "the panel is of a run that has measured it"
    mean, least, most = local
    axes.fill_between(epochs, least, most, color=color, alpha=0.25, linewidth=0)
    axes.plot(epochs, mean, color=color, marker=_mark(run), markevery=[-1])
    if metric != "train_loss":  # which is a mean over the ranks itself
        axes.plot(epochs, run.column(metric), color="#222222", linewidth=0.9, linestyle="--")


def unseen(runs: Sequence[Run], labels: Sequence[str], *metrics: str) -> str:
    """Sentences on the runs that are 0 in one of ``metrics``, where its axis is logarithmic; empty where none is."""
    said = ""
    for metric in metrics:
        ends = [run.last(metric) for run in runs]
        values = ends if metric == "bytes_sent" else [value for run in runs for value in run.told(metric)]
        absent = [label for end, label in zip(ends, labels, strict=True) if end == 0]
        if absent and _far_apart(values):
            what = {"bytes_sent": "number of bytes"}.get(metric, NAMES.get(metric, metric))
            said += f" The {what} is 0 in {'; '.join(absent)}, which a logarithmic axis cannot show."
    return said


def _far_apart(values: Sequence[float]) -> bool:
    """Whether positive values lie more than ten times apart."""
    found = [value for value in values if math.isfinite(value) and value > 0]
    return len(found) > 1 and max(found) > WIDE * min(found)


def _grid(runs: Sequence[Run], labels: Sequence[str], metrics: Sequence[str], abscissae: Sequence[str]) -> Figure:
    shown = [metric for metric in metrics if any(run.told(metric) for run in runs)] or list(metrics[:1])
    below = 0.17 * math.ceil(len(runs) / _columns(labels)) * (2 if max(map(len, labels)) > 46 else 1)
    height = 2.1 * len(shown) + 0.35 + below
    made, axes = plots.canvas(len(shown), len(abscissae), WIDTH, height, sharex="col", sharey="row")
    for place, one in enumerate(axes):
        row, column = divmod(place, len(abscissae))
        metric, abscissa = shown[row], abscissae[column]
        columns = [run.column(abscissa) for run in runs]
        for number, run in enumerate(runs):
            style = {**plots.line(number), "marker": _mark(run), "markevery": [-1], "linewidth": 1.3}
            one.plot(columns[number], run.column(metric), **style)
        _horizontal(one, abscissa, columns, named=row == len(shown) - 1)
        one.tick_params(labelsize=7)
        if column == 0:
            one.set_ylabel(NAMES[metric], fontsize=8)
            _vertical(one, metric, [run.column(metric) for run in runs])
    if len(runs) > 1:
        _legend(made, runs, labels)
    return made


def _mark(run: Run) -> str:
    return MARKS[run.completed]


def _horizontal(axes: Axes, quantity: str, values: Sequence[Sequence[float]], named: bool = True) -> None:
    """Scale and unit of an axis: logarithmic where runs end more than ten times apart, else from 0."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter

    names = {"epoch": "epoch", "bytes_sent": "sent per rank", "seconds": "time"}
    ends = [one[-1] for one in values if one and math.isfinite(one[-1]) and one[-1] > 0]
    wide = _far_apart(ends) and quantity != "epoch"
    form = {"bytes_sent": of_bytes, "seconds": of_seconds}.get(quantity)
    unit = ""
    if quantity == "epoch":
        axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    elif wide and form:
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: form(value)))
        axes.xaxis.set_minor_formatter(NullFormatter())
    elif ends:
        size, unit = unit_of(max(ends), BYTES) if quantity == "bytes_sent" else (1.0, "s")
        axes.xaxis.set_major_locator(MaxNLocator(nbins=5))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value / size:g}"))
    if not wide:
        axes.set_xlim(left=0)
    if named:
        axes.set_xlabel(names[quantity] + (f" ({unit})" if unit else ""), fontsize=8)


def _vertical(axes: Axes, metric: str, values: Sequence[Sequence[float]]) -> None:
    """Per cent for shares; a logarithmic scale for positive values that lie more than ten times apart."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

    if metric == "test_accuracy":
        axes.yaxis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 5, 10]))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g}%"))
        return
    found = [value for one in values for value in one if math.isfinite(value) and value > 0]
    if _far_apart(found):
        axes.set_yscale("log", nonpositive="mask")
        narrow = max(found) < 300 * min(found)
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if narrow else (1.0,)))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.yaxis.set_minor_formatter(NullFormatter())


def _columns(labels: Sequence[str]) -> int:
    longest = min(max(map(len, labels)), 46)
    return max(1, min(len(labels), 4, int(120 / (longest + 8))))


def _legend(figure: Figure, runs: Sequence[Run], labels: Sequence[str]) -> None:
    """Below the axes, so that it covers nothing."""
    from matplotlib.lines import Line2D

    handles: list[Any] = []
    for number, (run, label) in enumerate(zip(runs, labels, strict=True)):
        style = {**plots.line(number), "marker": _mark(run), "markevery": [1]}
        handles.append(Line2D([0, 1], [0, 0], label=textwrap.fill(named(run, label), 46), **style))
    figure.legend(
        handles=handles,
        loc="outside lower center",
        ncols=_columns(labels),
        frameon=False,
        fontsize=7.5,
        handlelength=2.6,
    )


def _spread_legend(figure: Figure, metric: str) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    grey = "#777777"
    handles: list[Any] = [
        Line2D([], [], color=grey, label="mean of the ranks"),
        Patch(color=grey, alpha=0.3, linewidth=0, label="worst to best rank"),
    ]
    if metric != "train_loss":
        handles.append(Line2D([], [], color="#222222", linewidth=0.9, linestyle="--", label="averaged model"))
    figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False, fontsize=7.5)
