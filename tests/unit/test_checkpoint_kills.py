"""A kill at any moment of a save leaves a run that loads: the checkpoint before, or the new one, whole."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from mpidec.train.checkpoint.files import _Sink
from mpidec.train.checkpoint.store import Checkpoints
from mpidec.transport.base import Transport
from support.checkpoints import about, on_ranks, same, save, state_of, tree

pytestmark = pytest.mark.mpi_skip  # a process that has started MPI is not to be forked

CALLS = ("fsync", "replace", "unlink", "rmdir", "mkdir")
KILLED = 100.0  # a loss that only the killed save writes


class Scene(NamedTuple):
    """``steps`` were saved by ``ranks``, of which ``keep`` stay, when the save of ``then`` is killed."""

    ranks: int
    steps: tuple[int, ...]
    then: int
    keep: int


SCENES = {
    "the-first": Scene(1, (), 1, 1),
    "the-only-one-goes": Scene(1, (1,), 2, 1),
    "one-of-three-goes": Scene(1, (1, 2), 3, 2),
    "the-same-step-again": Scene(1, (1,), 1, 1),
    "an-earlier-step-again": Scene(1, (1, 2), 1, 2),
    "two-ranks": Scene(2, (1, 2), 3, 2),
    "two-ranks-again": Scene(2, (1,), 1, 1),
}


def killed_state(rank: int, step: int) -> dict[str, Any]:
    return {**state_of(rank, step), "metrics": {"loss": KILLED}}


def instrument(moment: Callable[[str, Callable[[], None]], None]) -> None:
    """Let ``moment(call, half)`` happen before every system call of a save; ``half`` does a write by half."""
    for name in CALLS:
        real = getattr(os, name)

        def before(*args: Any, _name: str = name, _real: Callable[..., Any] = real, **options: Any) -> Any:
            moment(_name, lambda: None)
            return _real(*args, **options)

        setattr(os, name, before)
    write = _Sink.write

    def torn(sink: _Sink, data: Any) -> int:
        def half() -> None:
            sink.file.write(bytes(data)[: len(data) // 2])
            sink.file.flush()

        moment("write", half)
        return write(sink, data)

    _Sink.write = torn  # type: ignore[method-assign]


def child(run: Path, scene: Scene, last: int, report: Path | None = None) -> int:
    """The save in a process of its own, which kills itself at the ``last`` moment; returns how that process ended."""
    if pid := os.fork():
        return os.waitpid(pid, 0)[1]
    seen: list[str] = []

    def moment(call: str, half: Callable[[], None]) -> None:
        seen.append(call)
        if len(seen) == last:
            half()
            os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(60)  # another thread's signal may take a moment

    def work(transport: Transport) -> None:
        Checkpoints(run, transport, scene.keep).save(killed_state(transport.rank, scene.then), about(scene.then))

    code = 1
    try:
        instrument(moment)
        on_ranks(scene.ranks, work)
        if report is not None:
            report.write_text("\n".join(seen))
        code = 0
    finally:
        os._exit(code)


@pytest.mark.parametrize("scene", SCENES.values(), ids=SCENES)
def test_a_kill_leaves_a_run_that_loads(tmp_path: Path, scene: Scene) -> None:
    start, run = tmp_path / "start", tmp_path / "run"
    start.mkdir()
    on_ranks(scene.ranks, lambda transport: save(transport, start, *scene.steps, keep=scene.keep))
    shutil.copytree(start, tmp_path / "whole")
    assert child(tmp_path / "whole", scene, 0, tmp_path / "seen") == 0
    moments = (tmp_path / "seen").read_text().split()
    assert moments.count("replace") == scene.ranks + 2
    outcomes = set()
    for last, call in enumerate(moments, start=1):
        if call == "write" and last % 13:
            continue  # torch writes in dozens of pieces
        shutil.copytree(start, run)
        ended = child(run, scene, last)
        # Two ranks race for the removal of a folder, which is a moment more or less.
        assert ended == signal.SIGKILL or (scene.ranks > 1 and ended == 0)

        def go_on(transport: Transport) -> str:
            store = Checkpoints(run, transport, scene.keep)
            outcome = "none"
            if (latest := store.latest()) is not None:
                state, manifest = store.load(latest)
                new = same(state, killed_state(transport.rank, scene.then))
                outcome = "new" if new else "old"
                assert new or same(state, state_of(transport.rank, manifest["step"]))
                assert new or manifest["step"] == scene.steps[-1]
            store.save(state_of(transport.rank, 9), about(9))
            assert store.load(run)[1]["step"] == 9
            return outcome

        ranks = set(on_ranks(scene.ranks, go_on))
        assert len(ranks) == 1, "all ranks load the same checkpoint"
        outcomes |= ranks
        left = tree(run / "checkpoints")
        assert not [name for name in left if name.endswith(".partial")]
        finished = [name for name in left if name.endswith("manifest.json")]
        assert len([name for name in left if "/" not in name]) == 1 + len(finished), "what is unfinished is gone"
        assert len(finished) <= scene.keep
        shutil.rmtree(run)
    assert outcomes == {"old" if scene.steps else "none", "new"}


def test_what_is_renamed_is_on_the_disk_before_and_its_name_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No test can cut the power: this one looks at the order of the calls."""
    calls: list[tuple[str, str]] = []
    fsync, replace = os.fsync, os.replace

    def seen_fsync(handle: int) -> None:
        calls.append(("fsync", os.readlink(f"/proc/self/fd/{handle}")))
        fsync(handle)

    def seen_replace(source: Path, target: Path) -> None:
        calls.append(("replace", f"{source} {target}"))
        replace(source, target)

    monkeypatch.setattr(os, "fsync", seen_fsync)
    monkeypatch.setattr(os, "replace", seen_replace)
    on_ranks(1, lambda transport: save(transport, tmp_path, 1))
    place = tmp_path / "checkpoints"
    step = place / "step-00000001"
    expected = [("fsync", str(tmp_path)), ("fsync", str(place))]
    for folder, name in ((step, "rank-0000.pt"), (step, "manifest.json"), (place, "latest")):
        partial = folder / f".{name}.partial"
        expected += [("fsync", str(partial)), ("replace", f"{partial} {folder / name}"), ("fsync", str(folder))]
    assert calls == expected
