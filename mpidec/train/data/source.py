"""Where the samples of a run come from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mpidec.train.names import SCHEMES, data_name


@dataclass(frozen=True)
class Source:
    """A data set by ``name``, and what it takes to load it; the name is spelt as the table does.

    ``directory``: of the files; unset: ``data``. ``image_size``: pixels of a side, of image folders alone; unset: 64.
    ``sequence_length``: bytes of a sample, of text alone; unset: 64. ``workers``: processes that load samples, for sets
    that do not fit into memory.
    """

    name: str = "digits"
    directory: Path | None = None
    download: bool = False
    image_size: int | None = None
    sequence_length: int | None = None
    workers: int = 0

    def __post_init__(self) -> None:
        """Raises ``UserError`` for an unknown name."""
        object.__setattr__(self, "name", data_name(self.name))

    @property
    def scheme(self) -> str | None:
        """What stands before the colon, where that is ``libsvm`` or ``text``."""
        scheme, colon, _ = self.name.partition(":")
        return scheme if colon and scheme in SCHEMES else None

    @property
    def file(self) -> Path:
        """What stands behind the colon, the file of a scheme."""
        return Path(self.name.partition(":")[2])
