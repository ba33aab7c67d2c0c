"""The options of ``python -m mpidec.bench``, importable without torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import tyro

from mpidec.train.options.forms import Place

Part = Literal["compress", "exchange", "step", "cluster", "startup"]
PARTS: tuple[Part, ...] = ("compress", "exchange", "step", "cluster", "startup")


@dataclass(frozen=True)
class Options:
    """Measure the speed of mpidec against the limits of this machine, and against what would be used in its place."""

    parts: Annotated[tuple[Part, ...], tyro.conf.Positional] = ()
    """what to measure: compress, exchange, step, cluster, startup; unset: all of them"""
    quick: bool = False
    """fewer sizes, samples and cases: below 50 s in all"""
    json: bool = False
    """print one JSON object in place of the tables"""
    document: Place = None
    """Markdown file, such as docs/benchmarks.md, in which the sections of the parts that were measured are replaced"""
