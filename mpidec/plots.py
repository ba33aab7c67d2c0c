"""Plots in one style, with matplotlib where it is installed (the extra ``plot``)."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from mpidec.errors import UserError
from mpidec.folder import Folder, writing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#7f7f7f")  # Okabe and Ito
DASHES = ("-", "--", ":", "-.")


def refuse_without_matplotlib() -> None:
    """Raise ``UserError`` where no plot can be drawn, before hours of work."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise UserError("plots need matplotlib: pip install matplotlib, or mpidec with its extra plot") from None


def canvas(rows: int, columns: int, width: float, height: float, **shared: Any) -> tuple[Figure, list[Axes]]:
    """A figure of ``width`` by ``height`` inches with ``rows`` times ``columns`` axes, row by row.

    ``shared`` goes to matplotlib's ``subplots``. Needs no display.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    made = Figure(figsize=(width, height), layout="constrained", dpi=150)
    FigureCanvasAgg(made)
    axes = list(made.subplots(rows, columns, squeeze=False, **shared).flat)
    for one in axes:
        one.grid(True, which="major", color="#dddddd", linewidth=0.6)
        one.spines[["top", "right"]].set_visible(False)
        one.set_axisbelow(True)
    return made, axes


@contextmanager
def figure(folder: Folder, name: str, panels: int = 1, width: float = 5.2) -> Iterator[Sequence[Axes]]:
    """Axes side by side; what is drawn inside goes to ``name`` in ``folder``, a PNG."""
    made, axes = canvas(1, panels, width * panels, 4.0)
    yield axes
    with writing(folder.path):
        made.savefig(folder.path / name)
    print(f"plot in {folder.path / name}", file=sys.stderr, flush=True)


def line(number: int) -> dict[str, Any]:
    """Colour and dashes of the line ``number``, told apart in grey too."""
    return {"color": COLORS[number % len(COLORS)], "linestyle": DASHES[number // len(COLORS) % len(DASHES)]}


def legend(axes: Axes, entries: int) -> None:
    """Inside the axes where it is short, else below the whole figure, in which these axes name every line."""
    if entries <= 6:
        axes.legend(frameon=False, fontsize=8)
    else:
        axes.figure.legend(
            *axes.get_legend_handles_labels(), frameon=False, fontsize=7, loc="outside lower left", ncols=4
        )
