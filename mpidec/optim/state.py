"""Whose state a saved one is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mpidec.errors import UserError

PARTS = ["algorithm", "local", "rule", "shapes", "steps"]


def refuse_other_state(saved: Mapping[str, Any], rule: str, shapes: Mapping[str, Any], buffers: Sequence[str]) -> None:
    """Raise ``UserError`` where ``saved`` is no state of a ``rule`` with these ``buffers`` over parameters of these
    ``shapes``.
    """
    if sorted(saved) != PARTS:
        raise UserError(f"this is no state of a DistributedOptimizer, which holds {PARTS}: got {sorted(saved)}")
    if saved["rule"] != rule:
        raise UserError(f"the state was saved by {saved['rule']}, and cannot be taken up by {rule}")
    there = saved["shapes"]
    for name in [*there, *shapes]:
        if there.get(name) != shapes.get(name):
            raise UserError(
                f"the state was saved for other parameters: {name!r} has the shape {there.get(name)} there, and "
                f"{shapes.get(name)} here"
            )
    if sorted(saved["algorithm"]) != sorted(buffers):
        raise UserError(
            f"the state was saved by a {rule} of other options: it holds {sorted(saved['algorithm'])}, here are "
            f"{sorted(buffers)}"
        )
