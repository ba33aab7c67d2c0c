"""The page of results: one section a part, each with the machine and the date that it was measured on."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from pkgutil import resolve_name

from mpidec.bench.options import PARTS
from mpidec.bench.result import Result
from mpidec.bench.table import table
from mpidec.folder import replacing, writing

HEAD = """# Benchmarks

Written by `python -m mpidec.bench --document docs/benchmarks.md`; a part that is measured again replaces its section.
Ratios are to the yardstick of the same line, which took turns with it; every figure is a median of several runs.
"""


def update(path: Path, where: Mapping[str, Mapping[str, str]], measured: Mapping[str, Sequence[Result]]) -> None:
    """Write the sections of the parts that were ``measured`` into the file ``path``, and keep the other ones."""
    sections = _sections(path.read_text(encoding="utf-8")) if path.exists() else {}
    sections |= {part: _section(part, where, results) for part, results in measured.items()}
    text = "\n".join([HEAD, *(sections[part] for part in PARTS if part in sections)])
    with writing(path), replacing(path) as file:
        file.write(text.encode())


def findings(part: str, results: Sequence[Result]) -> list[str]:
    """What a ``part`` says of its results beside the table, a sentence a line."""
    module = resolve_name(f"mpidec.bench.{part}")
    return list(module.findings(results)) if hasattr(module, "findings") else []


def _section(part: str, where: Mapping[str, Mapping[str, str]], results: Sequence[Result]) -> str:
    about = resolve_name(f"mpidec.bench.{part}:ABOUT")
    facts = "; ".join(f"{name} {value}" for group in where.values() for name, value in group.items())
    said = "\n".join(f"- {sentence}" for sentence in findings(part, results))
    return (
        "\n\n".join(filter(None, [f"## {part}", about, f"Measured on: {facts}.", table(results, "github"), said]))
        + "\n"
    )


def _sections(text: str) -> dict[str, str]:
    """The sections of a page by the name of their part."""
    pieces = re.split(r"^## (\w+)$", text, flags=re.MULTILINE)
    return {name: f"## {name}{body.rstrip()}\n" for name, body in zip(pieces[1::2], pieces[2::2], strict=True)}
