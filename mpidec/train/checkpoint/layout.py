"""Names and places in the folder of a run; importable without torch."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mpidec.errors import UserError
from mpidec.folder import replacing

FOLDER, MANIFEST, POINTER = "checkpoints", "manifest.json", "latest"
STEP = re.compile(r"step-(\d{8,19})", re.ASCII)
RANK = re.compile(r"rank-(\d{4,9})(?:-(\d{1,9}))?\.pt", re.ASCII)


def step_name(step: int) -> str:
    """The folder of the checkpoint after ``step`` steps."""
    return f"step-{step:08d}"


def rank_name(rank: int, generation: int = 0) -> str:
    """The file of ``rank``. A step that is saved again has a ``generation`` above 0, so that its old files stay."""
    return f"rank-{rank:04d}-{generation}.pt" if generation else f"rank-{rank:04d}.pt"


EXAMPLE = f"RUN/{FOLDER}/{step_name(330)}"


def step_folders(checkpoints: Path) -> list[Path]:
    """All folders of checkpoints, finished or not, by step; none where there is no such place."""
    if not checkpoints.is_dir():
        return []
    found = [path for path in checkpoints.iterdir() if STEP.fullmatch(path.name) and path.is_dir()]
    return sorted(found, key=lambda path: (int(path.name.removeprefix("step-")), path.name))


def finished(checkpoints: Path) -> list[Path]:
    """The folders that have a manifest, by step."""
    return [path for path in step_folders(checkpoints) if (path / MANIFEST).is_file()]


def pointed(checkpoints: Path) -> Path | None:
    """The folder that the pointer names; where nothing has been pointed at, the last that is finished, or ``None``.

    Raises ``UserError`` for a pointer that is broken, or that leads out of the folder, and where nothing can be read.
    """
    with reading(checkpoints):
        return _pointed(checkpoints)


def _pointed(checkpoints: Path) -> Path | None:
    pointer = checkpoints / POINTER
    try:
        name = pointer.read_bytes()[:100].decode().strip()
    except FileNotFoundError:
        return next(reversed(finished(checkpoints)), None)
    except (OSError, ValueError) as error:
        raise UserError(f"{pointer} cannot be read ({_reason(error)}): {_choose(checkpoints)}") from None
    if not STEP.fullmatch(name):
        raise UserError(f"{pointer} names {name!r}, which is no checkpoint of this run: {_choose(checkpoints)}")
    if not (checkpoints / name / MANIFEST).is_file():
        raise UserError(f"{pointer} names {name}, which is not there or was not finished: {_choose(checkpoints)}")
    return checkpoints / name


def resolve(path: Path) -> Path:
    """The folder of one checkpoint: ``path`` itself, or the latest of the run or the ``checkpoints`` folder there.

    Raises ``UserError`` where there is none.
    """
    with reading(path):
        return _resolve(path)


def point_at(checkpoint: Path) -> None:
    """Make ``checkpoint`` the one that its run goes on from. Raises ``OSError`` where that cannot be written."""
    with replacing(checkpoint.parent / POINTER) as file:
        file.write(f"{checkpoint.name}\n".encode())


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """What cannot be read inside is told in one sentence, as a ``UserError``; a folder of another user's, say."""
    try:
        yield
    except OSError as error:
        raise UserError(f"{error.filename or path} cannot be read: {error.strerror}") from None


def _resolve(path: Path) -> Path:
    if not path.is_dir():
        what = "is no folder" if path.exists() else "does not exist"
        raise UserError(f"{path} {what}: give a run's folder, or one checkpoint in it, such as {EXAMPLE}")
    absolute = path.resolve()
    if STEP.fullmatch(absolute.name) or (path / MANIFEST).is_file():
        if not (path / MANIFEST).is_file():
            raise UserError(f"{path} has no {MANIFEST}, so it was never finished: {_choose(absolute.parent)}")
        return path
    for checkpoints in (path / FOLDER, path):
        if (latest := pointed(checkpoints)) is not None:
            return latest
    raise UserError(f"{path} holds no finished checkpoint: give a run's folder, or one checkpoint, {EXAMPLE}")


def _choose(checkpoints: Path) -> str:
    others = finished(checkpoints)
    return f"give one checkpoint, such as {others[-1]}" if others else "the run has no other checkpoint, start it anew"


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or "it is no text"
