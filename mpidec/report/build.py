"""From folders of runs to a folder with a page and its plots."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from mpidec import plots
from mpidec.errors import UserError
from mpidec.folder import Folder, writing
from mpidec.report import bars, curves, page, tables
from mpidec.report.labels import labels
from mpidec.report.page import Picture, Section
from mpidec.report.run import Run, refuse_repeated

PAGE = "report.html"


def report(paths: Sequence[Path], out: Path | None) -> Path:
    """Write the page and its plots into ``out``, a new or empty folder, and return the path of the page.

    Everything is read and drawn before anything is written. Raises ``UserError`` for folders that hold no run, that are
    given twice or cannot be read, for a missing library, and where ``out`` cannot be written.
    """
    if not paths:
        raise UserError("name the folder of one run at least, such as runs/2026-11-30-190611-choco-sign-ring-n16")
    refuse_repeated(paths)
    runs = [Run.read(path) for path in paths]
    plots.refuse_without_matplotlib()
    refuse_without_jinja2()
    names = labels(runs)
    with _plain_text():
        parts = sections(runs, names)
        contents = {PAGE: page.render(runs, names, parts).encode()}
        contents |= {f"{picture.name}.png": picture.png for part in parts for picture in part.figures}
    return write(out, contents) / PAGE


@contextmanager
def _plain_text() -> Iterator[None]:
    """Names in figures are taken as they are: a dollar begins no formula, and a letter may be missing in the font."""
    import matplotlib

    with matplotlib.rc_context({"text.parse_math": False}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        yield


def refuse_without_jinja2() -> None:
    """Raise ``UserError`` where no page can be written."""
    try:
        import jinja2  # noqa: F401
    except ImportError:
        raise UserError("pages need jinja2: pip install jinja2, or mpidec with its extra plot") from None


def sections(runs: Sequence[Run], names: Sequence[str]) -> list[Section]:
    """The figures that these ``runs`` have something to show in."""
    if not any(run.lines for run in runs):
        return []
    marks = "" if all(run.completed for run in runs) else " A cross ends a run that was not completed."
    made = [
        Section(
            "Loss and accuracy",
            [
                Picture(
                    "learning",
                    curves.learning(runs, names),
                    "loss and accuracy of the runs against epochs, bytes and seconds",
                    "Training loss (mean of the ranks over an epoch) and what the averaged model makes of the test "
                    "samples, against epochs, bytes sent by a rank, and time with the evaluations in it."
                    + curves.unseen(runs, names, "bytes_sent")
                    + marks,
                )
            ],
        )
    ]
    if any(value > 0 for run in runs for value in run.told("consensus_distance")):
        caption = "Root mean square distance of the ranks' parameters from their mean, after each epoch."
        alt = "consensus distance of the runs against epochs and bytes"
        caption += curves.unseen(runs, names, "consensus_distance", "bytes_sent") + marks
        picture = Picture("consensus", curves.consensus(runs, names), alt, caption)
        made.append(Section("Consensus distance", [picture]))
    measured = [name for name in curves.SPREADS if any(run.spread(f"{name}_local") for run in runs)]
    pictures = [
        Picture(
            f"spread-{metric.replace('_', '-')}",
            curves.spread(runs, names, metric),
            f"{curves.NAMES[metric]} of the single ranks of each run",
            f"{curves.NAMES[metric].capitalize()} of the ranks' own models: their mean, and a band from the least to "
            "the largest." + _unmeasured(runs, names, f"{metric}_local"),
        )
        for metric in measured
    ]
    if pictures:
        made.append(Section("Spread over the ranks", pictures))
    rows = tables.phases(runs)
    if rows:
        caption = (
            "Time per step by phase, mean of the ranks, without the first epoch of runs of several, in which ranks "
            "start up. The time of an evaluation is shared out among the steps of its epoch. Waiting for slower ranks "
            "is part of the exchange. A black line is the whole by rank 0's clock; what is missing up to it is in no "
            "phase."
        )
        picture = Picture("phases", bars.phases(runs, names), "time per step by phase, a bar for each run", caption)
        slowest = (
            "Mean of the ranks; in brackets the slowest rank."
            if any(run.per_step("phases_max")[1] for run in runs)
            else ""
        )
        made.append(Section("Time by phase", [picture], rows, "time per step", slowest))
    return made


def _unmeasured(runs: Sequence[Run], names: Sequence[str], metric: str) -> str:
    """A sentence on the runs without ``metric``; empty where all have it."""
    without = [name for run, name in zip(runs, names, strict=True) if not run.spread(metric)]
    return f" Not measured in {'; '.join(without)}." if without else ""


def write(out: Path | None, contents: dict[str, bytes]) -> Path:
    """Files of these ``contents`` in the folder ``out``, all of them or none."""
    with Folder.filled(out, "report") as folder, writing(folder.path):
        for name, content in contents.items():
            (folder.path / name).write_bytes(content)
    return folder.path
