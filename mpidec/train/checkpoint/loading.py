"""Loading: each rank its own file, and one sentence on all ranks where any of them cannot."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mpidec.errors import UserError
from mpidec.optim.agreement import first_failure
from mpidec.train.checkpoint import files, manifest
from mpidec.train.checkpoint.layout import STEP, resolve
from mpidec.transport.base import Transport

Named = tuple[str, dict[str, Any]]


@dataclass
class _Found:
    """What rank 0 sees: the checkpoint's ``place`` under the given path with its manifest, or the ``failure``.

    ``earlier``: the checkpoints beside it to fall back on, the best first, each with its manifest. ``None`` where none
    would help.
    """

    failure: str = ""
    place: str = ""
    about: dict[str, Any] = field(default_factory=dict)
    earlier: list[Named] | None = None


def load(path: Path, transport: Transport) -> tuple[dict[str, Any], dict[str, Any]]:
    """This rank's state, with tensors on the CPU, and the manifest, of the checkpoint that ``path`` leads to.

    ``path``: a run's folder, its ``checkpoints``, or one checkpoint. A collective call; nothing but tensors and plain
    values is ever unpickled. Raises ``UserError``, the same on all ranks, where there is no checkpoint, it was saved by
    another number of ranks, or a file of any rank is not what was saved; it names an earlier one that is whole.
    """
    found: _Found = transport.broadcast_object(_find(path, transport.size) if transport.rank == 0 else None)
    folder, failure, state = path / found.place, found.failure, dict[str, Any]()
    if not failure:
        mine = ""
        try:
            entry = found.about["files"][transport.rank]
            state = files.read(folder / entry["name"], entry)
        except UserError as error:
            mine = str(error)
        failure = first_failure(transport.all_gather_objects(mine))
    if not failure:
        return state, found.about
    if found.earlier is not None:
        failure += f"; {_advice(folder, found.earlier, transport)}"
    raise UserError(failure)


def _find(path: Path, size: int) -> _Found:
    """On rank 0: the checkpoint, or why there is none for ``size`` ranks."""
    try:
        folder = resolve(path)
    except UserError as error:
        return _Found(str(error))
    place = str(folder.relative_to(path))
    try:
        about = manifest.read(folder)
    except manifest.BrokenError as error:
        return _Found(str(error), place, earlier=_earlier(folder, size))
    except UserError as error:
        return _Found(str(error))
    if (ranks := about["ranks"]) != size:
        return _Found(
            f"the checkpoint {folder} was saved by {ranks} ranks, and this job has {size}: start it with {ranks}, or "
            f"start a new run from its averaged model with --resume-as {path}"
        )
    return _Found("", place, about, _earlier(folder, size))


def _earlier(folder: Path, size: int) -> list[Named]:
    """The checkpoints of ``size`` ranks beside ``folder`` from before its step, the last one first."""
    absolute = folder.resolve()
    if not STEP.fullmatch(absolute.name):
        return []
    step = int(absolute.name.removeprefix("step-"))
    found: list[Named] = []
    with suppress(OSError):
        found = [(other.name, about) for other, about in manifest.readable(absolute.parent).items()]
    fit = [(name, about) for name, about in found if about["step"] < step and about["ranks"] == size]
    return sorted(fit, key=lambda one: -int(one[1]["step"]))


def _advice(folder: Path, earlier: list[Named], transport: Transport) -> str:
    """What to do instead: all ranks look which of the ``earlier`` checkpoints is whole. A collective call."""
    for name, about in earlier:
        other = Path(os.path.normpath(folder / os.pardir / name))
        entry = about["files"][transport.rank]
        if not any(transport.all_gather_objects(files.check(other / entry["name"], entry))):
            return f"take the checkpoint before: --resume {other}"
    return "no earlier checkpoint of this run is whole: bring back what was saved, or start anew"
