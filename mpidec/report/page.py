"""The page: one HTML file with everything in it."""

from __future__ import annotations

import base64
import io
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from mpidec import plots
from mpidec.report import tables
from mpidec.report.curves import WIDTH
from mpidec.report.labels import equal
from mpidec.report.run import Run
from mpidec.report.tables import Row
from mpidec.report.units import readable
from mpidec.version import __version__

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STROKES = {"-": "", "--": "7 3", ":": "2 2.5", "-.": "8 2.5 2 2.5"}  # matplotlib's dashes, as SVG has them
BEST = "Best values of completed runs are in bold. "
MEANING = (
    "The averaged model has the mean of all ranks' parameters; the consensus distance is the root mean square distance "
    "of the ranks' parameters from that mean. Bytes are those handed to the transport, 1 kB = 1000 bytes; steps per "
    "second leave the evaluation out."
)


@dataclass(frozen=True)
class Picture:
    """A figure of the page; ``name`` is that of its PNG."""

    name: str
    figure: Figure
    alt: str
    caption: str

    @property
    def narrow(self) -> bool:
        """Whether it is much less wide than the text."""
        return bool(self.figure.get_figwidth() < 0.8 * WIDTH)

    @property
    def source(self) -> str:
        """The figure as a data URI, sharp in print."""
        import matplotlib

        target = io.BytesIO()
        with matplotlib.rc_context({"svg.hashsalt": self.name}):  # the same bytes for the same runs
            self.figure.savefig(target, format="svg", metadata={"Date": None})
        return "data:image/svg+xml;base64," + base64.b64encode(target.getvalue()).decode()

    @property
    def png(self) -> bytes:
        """The figure as a file of its own."""
        target = io.BytesIO()
        self.figure.savefig(target, format="png", dpi=200)
        return target.getvalue()


@dataclass(frozen=True)
class Section:
    """Figures under one title, and perhaps a table with a ``note`` below it."""

    title: str
    figures: list[Picture]
    rows: list[Row] = field(default_factory=list)
    corner: str = ""
    note: str = ""


def render(runs: Sequence[Run], labels: Sequence[str], sections: Sequence[Section]) -> str:
    """The page as HTML, whatever is in the folders escaped."""
    import jinja2

    template = (files("mpidec.report") / "page.html").read_text(encoding="utf-8")
    # Undefined names of the template are faults, not empty places.
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    several = len(runs) > 1
    software = [tables.software(run) for run in runs]
    shared = [(name, value) for name, value in software[0].items() if all(one.get(name) == value for one in software)]
    return environment.from_string(template).render(
        title=f"Comparison of {len(runs)} runs" if several else f"Run: {labels[0]}",
        subtitle=f"mpidec {__version__}, {time.strftime('%Y-%m-%d %H:%M')}",
        runs=[_shown(number, run, label) for number, (run, label) in enumerate(zip(runs, labels, strict=True))],
        notes=notes(runs, labels),
        numbers=tables.final_numbers(runs),
        numbers_note=(BEST if several else "") + MEANING if any(run.lines for run in runs) else "",
        sections=sections,
        differing=tables.settings(runs),
        equal=[(name.replace("_", " "), value) for name, value in equal(runs).items()],
        software=shared,
    )


def notes(runs: Sequence[Run], labels: Sequence[str]) -> list[tuple[str, str]]:
    """What a reader must know before the numbers: runs that did not come to their end, and odd folders."""
    found = []
    for run, label in zip(runs, labels, strict=True):
        found += [(label, run.status)] if not run.completed else []
        found += [(label, remark) for remark in run.remarks]
    return found


def _shown(number: int, run: Run, label: str) -> dict[str, Any]:
    style = plots.line(number)
    return {"label": label, "path": readable(run.path), "color": style["color"], "dashes": STROKES[style["linestyle"]]}
