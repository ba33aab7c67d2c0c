"""Results as a table for people."""

from __future__ import annotations

from collections.abc import Sequence

from tabulate import tabulate

from mpidec.bench.result import Result

SCALES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))


def table(results: Sequence[Result], style: str = "simple") -> str:
    """One line a result; ``style`` is one of tabulate's."""
    rows = [
        [
            one.case,
            quantity(one.value, one.unit),
            one.yardstick or "",
            "" if one.ratio is None else f"{one.ratio:.3g}",
            "" if one.target is None else f"{one.target:g}",
            {None: "", True: "yes", False: "no"}[one.met],
        ]
        for one in results
    ]
    headers = ["case", "value", "yardstick", "ratio", "target", "met"]
    return tabulate(
        rows, headers, style, disable_numparse=True, colalign=["left", "right", "left", "right", "right", "left"]
    )


def quantity(value: float, unit: str) -> str:
    """With a unit that fits: seconds as milliseconds, microseconds or nanoseconds.

    >>> quantity(0.00532, "s")
    '5.32 ms'
    """
    if unit != "s" or value <= 0:
        return f"{value:.4g} {unit}".strip()
    factor, name = next(((f, n) for f, n in SCALES if value >= f), SCALES[-1])
    return f"{value / factor:.3g} {name}"
