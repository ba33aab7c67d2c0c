"""``python -m mpidec.report RUN [RUN ...]``: a page that compares runs, with its plots."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from mpidec.cli import fail, parse, refuse_ranks, run
from mpidec.errors import UserError


@dataclass(frozen=True)
class Options:
    """Compare runs on one HTML page, with its plots as PNG. Example: python -m mpidec.report runs/* --out report"""

    runs: Annotated[
        tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN [RUN ...]", help_behavior_hint="")
    ]
    """folders that mpidec.train or mpidec.simulate network has written"""
    out: Annotated[Path | None, tyro.conf.arg(metavar="PATH", help_behavior_hint="")] = None
    """folder of the page and its plots, new or empty; unset: runs/<time>-report"""


def main() -> None:
    """Write the page that the command line asks for."""
    options = parse(Options, "python -m mpidec.report")
    refuse_ranks("a report is written by one process")

    from mpidec.report.build import report

    try:
        page = report(options.runs, options.out)
    except UserError as error:
        fail(str(error))
    print(f"report in {page}", flush=True)


if __name__ == "__main__":
    run(main)
