"""Numbers as people read them: bytes and seconds with their units, shares, and settings."""

from __future__ import annotations

import json
import math
from typing import Any

DASH = "-"  # in the place of a number that a run does not have
BYTES = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B"))
SECONDS = ((3600.0, "h"), (60.0, "min"), (1.0, "s"), (1e-3, "ms"), (1e-6, "\u00b5s"))


def unit_of(largest: float, units: tuple[tuple[float, str], ...]) -> tuple[float, str]:
    """The unit in which ``largest`` is 1 at least, or the smallest one."""
    return next(((size, name) for size, name in units if largest >= size), units[-1])


def of_bytes(value: float) -> str:
    """Bytes, in powers of 1000.

    >>> of_bytes(2480), of_bytes(0), of_bytes(999.7), of_bytes(999_950), of_bytes(1_116_000)
    ('2.48 kB', '0 B', '1 kB', '1 MB', '1.12 MB')
    """
    return _with_unit(value, BYTES)


def of_seconds(value: float) -> str:
    """Seconds, or the unit that fits.

    >>> of_seconds(6.54), of_seconds(0.00123), of_seconds(150), of_seconds(0)
    ('6.54 s', '1.23 ms', '2.5 min', '0 s')
    """
    return "0 s" if value == 0 else _with_unit(value, SECONDS)


def of_share(value: float) -> str:
    """A share of 1 in per cent.

    >>> of_share(0.98333)
    '98.33%'
    """
    return f"{value:.2%}" if math.isfinite(value) else DASH


def of_number(value: float) -> str:
    """Three digits, or all of a number in the thousands.

    >>> of_number(0.017), of_number(207.94), of_number(1234.5), of_number(0), of_number(float("nan"))
    ('0.0170', '208', '1,234', '0', '-')
    """
    if not math.isfinite(value):
        return DASH
    if 1000 <= abs(value) < 1e6 or value == 0:
        return f"{value:,.0f}"
    return f"{value:#.3g}".rstrip(".")


def of_count(value: float) -> str:
    """All digits.

    >>> of_count(690), of_count(10_000)
    ('690', '10,000')
    """
    return f"{value:,.0f}" if math.isfinite(value) else DASH


def of_setting(value: Any) -> str:
    """The value of an option, equal for equal ones.

    >>> of_setting(True), of_setting(1.0), of_setting(1e-05), of_setting(None), of_setting("ring")
    ('yes', '1', '1e-05', '-', 'ring')
    """
    if value is None:
        return DASH
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.12g}"
    return readable(value if isinstance(value, str) else json.dumps(value, default=str))


def readable(text: object) -> str:
    r"""Without line breaks and what no font has a letter for.

    >>> readable("two\nlines")
    'two lines'
    """
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in " ".join(str(text).split()))


def _with_unit(value: float, units: tuple[tuple[float, str], ...]) -> str:
    if not math.isfinite(value):
        return DASH
    rounded = float(f"{value:.3g}")  # 999.9 kB is 1 MB
    size, name = unit_of(rounded, units)
    shown = rounded / size
    return f"{shown:,.0f} {name}" if shown >= 1000 else f"{shown:.3g} {name}"
