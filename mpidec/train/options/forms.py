"""The forms that options have on the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

# Options that may be unset; without a name for their values help would show each as "{None}|FLOAT".
Number = Annotated[float | None, tyro.conf.arg(metavar="FLOAT")]
Count = Annotated[int | None, tyro.conf.arg(metavar="INT")]
Name = Annotated[str | None, tyro.conf.arg(metavar="STR")]
Gamma = Annotated[float | Literal["auto"] | None, tyro.conf.arg(metavar="FLOAT|auto")]
Truth = Annotated[bool | None, tyro.conf.arg(metavar="True|False")]
Place = Annotated[Path | None, tyro.conf.arg(metavar="PATH")]


def one_of(names: list[str], then: str = "") -> Any:
    """Help that lists what there is, the parts of other packages too."""
    return tyro.conf.arg(metavar="STR", help=", ".join(names[:-1]) + f" or {names[-1]}{then}")
