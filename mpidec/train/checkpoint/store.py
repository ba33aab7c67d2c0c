"""Saving and loading by all ranks together: either every rank has the new checkpoint, or all keep the one before."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mpidec.errors import UserError
from mpidec.folder import make_folder, partial_of, replacing
from mpidec.optim.agreement import by_rank_0, first_failure
from mpidec.train.checkpoint import files, loading, manifest
from mpidec.train.checkpoint.layout import (
    FOLDER,
    MANIFEST,
    POINTER,
    RANK,
    finished,
    point_at,
    pointed,
    rank_name,
    step_folders,
    step_name,
)
from mpidec.transport.base import Transport


@dataclass
class _Outcome:
    """How a save ended: the ``failure``, if any, and whether there is a ``finished`` checkpoint of the step.

    ``stay``: by folder, the generation of the files that stay; ``None`` where it is unknown, and nothing is touched.
    """

    failure: str = ""
    finished: bool = False
    stay: dict[str, int | None] = field(default_factory=dict)


class Checkpoints:
    """The checkpoints of the run ``folder``, of which the newest ``keep`` stay. All methods are collective calls.

    Nothing assumes that a rank sees the files of another: each writes and reads its own, in ``folder`` on its own host.
    A kill at any moment leaves the checkpoint before, or the new one, to be loaded.
    """

    def __init__(self, folder: Path, transport: Transport, keep: int) -> None:
        assert keep >= 1, "the newest checkpoint stays"
        self.place, self.transport, self.keep = folder / FOLDER, transport, keep

    def save(self, state: Mapping[str, Any], about: Mapping[str, Any]) -> Path:
        """Keep this rank's ``state`` on the disk; returns the checkpoint's folder.

        ``state`` has the ``model`` by name and whatever else weights_only loads again; ``about``, of which rank 0's
        counts, has the ``step``, and goes into the manifest as JSON. A step that was saved before is replaced.

        Raises ``UserError``, the same on all ranks, where one of them cannot write; nothing new is left then, and the
        earlier checkpoints are as they were.
        """
        rank, target = self.transport.rank, self.place / step_name(about["step"])
        # What was saved for this step stays whole until the manifest names the new files.
        generation, before = self.transport.broadcast_object(self._standing(target) if rank == 0 else None)
        path = target / rank_name(rank, generation)
        everyone = self.transport.all_gather_objects(_written(path, state))
        outcome = _Outcome(first_failure(everyone))
        if not outcome.failure:
            if rank == 0:
                about_all = manifest.complete(about, everyone, manifest.parameters_of(state))
                outcome = self._commit(target, manifest.text_of(about_all))
            outcome = self.transport.broadcast_object(outcome)
        if outcome.failure:
            if not outcome.finished:
                _remove(path, target, self.place)
            self.transport.barrier()
            left = f"go on with --resume {before}" if before else "there is no earlier checkpoint"
            raise UserError(
                f"the checkpoint of step {about['step']} cannot be written ({outcome.failure}): put that right, and "
                f"{left}"
            )
        if outcome.stay:
            with suppress(OSError):
                self._tidy(outcome.stay)
        # A rank that still tidies up must not meet the folder of the next checkpoint.
        self.transport.barrier()
        return target

    def latest(self) -> Path | None:
        """The folder of the newest checkpoint, ``None`` before the first; raises ``UserError`` for a broken pointer."""

        def name() -> str | None:
            folder = pointed(self.place)
            return folder.name if folder else None

        found = by_rank_0(self.transport, name)
        return self.place / found if found else None

    def load(self, path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
        """See ``mpidec.train.checkpoint.loading.load``; ``path`` may be of another run."""
        return loading.load(path, self.transport)

    def _standing(self, target: Path) -> tuple[int, str]:
        """Which generation of its step the next checkpoint is, and the folder of the one to fall back on."""
        generation, before = 0, None
        with suppress(UserError, OSError):
            generation = manifest.generation_of(manifest.read(target)) + 1
        with suppress(UserError, OSError):
            before = pointed(self.place)
        return generation, str(before or "")

    def _commit(self, target: Path, text: str) -> _Outcome:
        """Rank 0 makes the files a checkpoint, which it is from the rename of the manifest on, and the latest one."""
        again = (target / MANIFEST).exists()
        path = target / MANIFEST
        try:
            with replacing(path) as file:
                file.write(text.encode())
            path = self.place / POINTER
            point_at(target)
        except OSError as error:
            if not again:
                _remove(target / MANIFEST)
            # Where the old manifest of this step is gone, the new files are all there is of it.
            finished_now = _content(target / MANIFEST) == text
            return _Outcome(f"rank 0: {path}: {error.strerror}", finished=finished_now)
        # What cannot be listed takes room, and harms nothing.
        with suppress(OSError):
            return _Outcome(finished=True, stay=self._staying(target))
        return _Outcome(finished=True)

    def _staying(self, target: Path) -> dict[str, int | None]:
        """On rank 0: which checkpoints stay (see ``_Outcome``); the others lose their manifests."""
        known = manifest.readable(self.place)
        names = [folder.name for folder in known][-self.keep :]
        stay: dict[str, int | None] = {}
        for folder in finished(self.place):
            if folder not in known:
                stay[folder.name] = None
            elif folder.name in (*names, target.name):
                stay[folder.name] = manifest.generation_of(known[folder])
            else:
                _remove(folder / MANIFEST)
        return stay

    def _tidy(self, stay: dict[str, int | None]) -> None:
        """Remove this rank's files of what is not in ``stay`` (see ``_Outcome``), or was never finished."""
        for folder in step_folders(self.place):
            if folder.name in stay and stay[folder.name] is None:
                continue
            with suppress(OSError):
                for path in list(folder.iterdir()):
                    if self._removable(path.name, stay.get(folder.name)):
                        os.unlink(path)
                if folder.name not in stay:
                    os.rmdir(folder)

    def _removable(self, name: str, generation: int | None) -> bool:
        """Whether this rank removes the file ``name`` of a folder of which ``generation`` stays, ``None`` for none."""
        rank, size = self.transport.rank, self.transport.size
        if name == partial_of(Path(MANIFEST)).name:
            return rank == 0
        found = RANK.fullmatch(name) or RANK.fullmatch(name.removeprefix(".").removesuffix(".partial"))
        # An earlier job may have had more ranks.
        if found is None or int(found[1]) % size != rank:
            return False
        return generation is None or name != rank_name(int(found[1]), generation)


def _written(path: Path, state: Mapping[str, Any]) -> dict[str, Any] | str:
    """The entry of the file for the manifest, or why there is none."""
    place = path.parent
    try:
        make_folder(place)
        place = path
        return files.write(path, state)
    except OSError as error:
        return f"{place}: {error.strerror or error}"
    except UserError as error:
        return str(error)


def _remove(path: Path, *folders: Path) -> None:
    """Without ``path``, and without the ``folders`` that are empty then; what cannot be removed stays."""
    for remove, what in ((os.unlink, path), *((os.rmdir, folder) for folder in folders)):
        with suppress(OSError):
            remove(what)


def _content(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return ""
