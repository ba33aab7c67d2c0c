"""The lines of ``metrics.jsonl``, read with care: their writer may have been killed, or be another program."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from mpidec.errors import UserError

WANTED = ("epoch", "step")  # a line without them has no place on any axis
NUMBERS = ("lr", "train_loss", "test_loss", "test_accuracy", "consensus_distance", "bytes_sent", "seconds")
GROUPS = ("train_loss_local", "test_loss_local", "test_accuracy_local", "phases", "phases_max")


def read_text(path: Path) -> str:
    """The whole file. Raises ``UserError`` where it cannot be read or is no UTF-8 text."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is no UTF-8 text"
        raise UserError(f"{path} cannot be read: {reason}") from None


def read_lines(path: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """The records of ``path`` in rising order of their epochs, and remarks on what was left out.

    A last line without its end is left out, as is what was written of an epoch before it was done once more. Raises
    ``UserError`` for any other line that is no record of an epoch.
    """
    text, remarks = _text(path), []
    lines: dict[float, dict[str, Any]] = {}
    again: list[float] = []
    rows = text.split("\n")
    for number, row in enumerate(rows, 1):
        if not row.strip():
            continue
        place = f"{path}, line {number}"
        try:
            line = json.loads(row)
        except ValueError as error:
            if number < len(rows):
                raise UserError(f"{place} is no valid JSON: {error}") from None
            remarks.append("the last line of metrics.jsonl was only half written, and is left out")
            continue
        refuse_strange(line, place)
        for epoch in [epoch for epoch in lines if epoch >= line["epoch"]]:
            del lines[epoch]
            again.append(epoch)
        lines[line["epoch"]] = line
    if again:
        first, last = min(again), max(again)
        some = f"epoch {first:g} was" if first == last else f"epochs {first:g} to {last:g} were"
        remarks.append(f"{some} run more than once, and the last time counts")
    return list(lines.values()), remarks


def _text(path: Path) -> str:
    """As ``read_text``, but where a killed writer has cut a letter of the last line in two, without it."""
    try:
        return read_text(path)
    except UserError:
        try:
            content = path.read_bytes()
        except OSError:
            raise
        head, end, tail = content.rpartition(b"\n")
        if _is_text(tail) or not _is_text(head):
            raise
        return (head + end).decode() + tail.decode(errors="replace")


def _is_text(content: bytes) -> bool:
    try:
        content.decode()
    except ValueError:
        return False
    return True


def refuse_strange(line: Any, place: str) -> None:
    """Raise ``UserError``, with its ``place``, for a ``line`` that is not the record of an epoch."""
    if not isinstance(line, dict):
        raise UserError(f"{place} must be the metrics of an epoch, a JSON object: got {type(line).__name__}")
    for name in WANTED:
        if not _is_number(line.get(name)) or not math.isfinite(line[name]):
            raise UserError(f"{place}: {name} must be a number: got {line.get(name)!r}")
    for name in NUMBERS:
        if line.get(name) is not None and not _is_number(line[name]):
            raise UserError(f"{place}: {name} must be a number: got {line[name]!r}")
    for name in GROUPS:
        group = line.get(name)
        if group is not None and not (isinstance(group, dict) and all(_is_number(one) for one in group.values())):
            raise UserError(f"{place}: {name} must be numbers by name: got {group!r}")


def _is_number(value: Any) -> bool:
    """Whether ``value`` fits into a float; NaN and infinity do."""
    return isinstance(value, float) or (isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1e300)
