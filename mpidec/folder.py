"""The folder of results: new or empty, and never half a file in it."""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from mpidec.errors import UserError

Made = TypeVar("Made", bound="Folder")


class Folder:
    """Where the results of one run go. Every method raises ``UserError`` where it cannot write."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def make(cls: type[Made], path: Path | None, name: str) -> Made:
        """The folder at ``path``, or at ``runs/<time>-<name>``; ``UserError`` where it holds anything already."""
        path = path or Path("runs") / f"{time.strftime('%Y-%m-%d-%H%M%S')}-{name}"
        if path.exists() and not path.is_dir():
            raise UserError(f"the output folder {path} is a file: choose another --out, nothing is overwritten")
        with writing(path):
            path.mkdir(parents=True, exist_ok=True)
            if any(path.iterdir()):
                raise UserError(f"the output folder {path} is not empty: choose another --out, nothing is overwritten")
        return cls(path)

    @classmethod
    @contextmanager
    def filled(cls: type[Made], path: Path | None, name: str) -> Iterator[Made]:
        """As ``make``, for what is written inside: all of it, or nothing is left."""
        made = path is None or not path.exists()
        folder = cls.make(path, name)
        try:
            yield folder
        except BaseException:
            for file in folder.path.iterdir():
                file.unlink()
            if made:
                folder.path.rmdir()
            raise

    def append(self, name: str, record: dict[str, Any]) -> None:
        """One more line of the JSON-lines file ``name``."""
        with writing(self.path), open(self.path / name, "a", encoding="utf-8") as file:
            file.write(json.dumps(record, allow_nan=False) + "\n")

    def replace(self, name: str, text: str) -> None:
        """The whole file ``name``, in place of an earlier one, whenever the process is killed."""
        with self.replacing(name) as file:
            file.write(text.encode())

    @contextmanager
    def replacing(self, name: str) -> Iterator[BinaryIO]:
        """The same for what is too long for one text: write it piece by piece, it takes its place at the end."""
        with writing(self.path), replacing(self.path / name) as file:
            yield file


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """What fails inside, fails because of the folder ``path``: said in one sentence."""
    try:
        yield
    except OSError as error:
        raise UserError(f"the output folder {path} cannot be written: {error.strerror}") from None


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file to write, which takes the place of ``path`` once it is whole and on the disk.

    Whenever the process is killed, ``path`` is the earlier file or the new one; what fails inside leaves the earlier
    one and nothing beside it. Raises ``OSError``.
    """
    temporary = partial_of(path)
    try:
        with open(temporary, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise
    sync_folder(path.parent)


def make_folder(path: Path) -> None:
    """Make ``path``, and what is missing above it, so that they outlive a power cut. Raises ``OSError``."""
    if not path.is_dir():
        make_folder(path.parent)
        path.mkdir(exist_ok=True)
        sync_folder(path.parent)


def partial_of(path: Path) -> Path:
    """Where ``replacing`` writes what becomes ``path``."""
    return path.with_name(f".{path.name}.partial")


def sync_folder(path: Path) -> None:
    """Bring the names in a folder to the disk: without it a renamed file may be gone after a power cut."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    except OSError as error:
        # Some network file systems know no fsync of a folder; they bring a rename to the server at once.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(handle)
