"""The folder of results: new or empty, and never half a file in it."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

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
        with writing(path):
            path.mkdir(parents=True, exist_ok=True)
            if any(path.iterdir()):
                raise UserError(f"the output folder {path} is not empty: choose another --out, nothing is overwritten")
        return cls(path)

    def append(self, name: str, record: dict[str, Any]) -> None:
        """One more line of the JSON-lines file ``name``."""
        with writing(self.path), open(self.path / name, "a", encoding="utf-8") as file:
            file.write(json.dumps(record, allow_nan=False) + "\n")

    def replace(self, name: str, text: str) -> None:
        """The whole file ``name``, in place of an earlier one, whenever the process is killed."""
        temporary = self.path / f".{name}.partial"
        with writing(self.path):
            try:
                with open(temporary, "w", encoding="utf-8") as file:
                    file.write(text)
                    file.flush()
                    os.fsync(file.fileno())
                temporary.replace(self.path / name)
            except OSError:
                temporary.unlink(missing_ok=True)
                raise


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """What fails inside, fails because of the folder ``path``: said in one sentence."""
    try:
        yield
    except OSError as error:
        raise UserError(f"the output folder {path} cannot be written: {error.strerror}") from None
