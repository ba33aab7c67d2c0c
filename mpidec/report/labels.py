"""What tells runs apart: the settings that differ, and a name for each run made of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from mpidec.report.run import Run
from mpidec.report.units import of_setting, readable

ALWAYS = ("algorithm", "compressor", "topology")
UNSAID = {"compressor": "identity"}  # a name without it means just that
LONGEST = 60  # letters of a part of a name
LAST = ("seed", "collectives", "device")  # what names a run only where nothing else does


def differing(runs: Sequence[Run]) -> dict[str, list[str]]:
    """The settings that are not equal in all ``runs``: by name, a value for each run, a dash where it has none."""
    return {name: values for name, values in _shown(runs).items() if len(set(values)) > 1}


def equal(runs: Sequence[Run]) -> dict[str, str]:
    """The settings that are equal in all ``runs``."""
    return {name: values[0] for name, values in _shown(runs).items() if len(set(values)) == 1}


def labels(runs: Sequence[Run]) -> list[str]:
    """A name for each of ``runs``, all different: algorithm, compressor and graph, then what else tells it apart.

    Where no setting does, the folder's name does, or its path.
    """
    made = [" ".join(_base(run)) or "run" for run in runs]
    others = [name for name in differing(runs) if name not in ALWAYS]
    for name in sorted(others, key=LAST.__contains__):
        made = _told_apart(made, [_part(name, run.settings.get(name)) for run in runs])
    for places in ([run.path.name for run in runs], [run.path for run in runs]):
        made = _told_apart(made, [f"({readable(place)})" for place in places])
    return _told_apart(made, [f"({number})" for number in range(1, len(runs) + 1)])


def _shown(runs: Sequence[Run]) -> dict[str, list[str]]:
    settings = [run.settings for run in runs]
    names = dict.fromkeys(name for one in settings for name, value in one.items() if value is not None)
    return {name: [of_setting(one.get(name)) for one in settings] for name in names}


def _base(run: Run) -> list[str]:
    chosen = run.settings
    parts = ((name, chosen.get(name)) for name in ALWAYS)
    return [_short(value) for name, value in parts if value is not None and value != UNSAID.get(name)]


def _part(name: str, value: Any) -> str:
    if value is None:
        return ""
    shown, words = _short(value), name.replace("_", " ")
    if isinstance(value, bool):
        return words if value else f"no {words}"
    if name in ("ranks", "epochs"):
        return f"{shown} {name.removesuffix('s') if shown == '1' else name}"
    return f"{words} {shown}"


def _told_apart(made: list[str], parts: Sequence[str]) -> list[str]:
    """``made``, where those that are equal get their ``parts`` if that makes some of them different."""
    among = {label: {part for one, part in zip(made, parts, strict=True) if one == label} for label in Counter(made)}
    return [
        f"{label}{_joint(part)}{part}" if len(among[label]) > 1 and part else label
        for label, part in zip(made, parts, strict=True)
    ]


def _joint(part: str) -> str:
    return " " if part.startswith("(") else ", "


def _short(value: Any) -> str:
    shown = of_setting(value)
    return shown if len(shown) <= LONGEST else f"{shown[: LONGEST - 3]}..."
