"""A command that works in several processes leaves none behind, however it is told to end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from support.jobs import environment

PATTERN = ["-m", "mpidec.simulate", "pattern", "--ranks", "2", "--processes", "2", "--epochs", "200"]


def group(leader: int) -> list[int]:
    """The processes of the group that ``leader`` started, but for those that have ended and wait to be reaped."""
    alive = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                state, _, its_group = (entry / "stat").read_text().rpartition(")")[2].split()[:3]
            except OSError:  # it has ended meanwhile
                continue
            if int(its_group) == leader and state != "Z":
                alive.append(int(entry.name))
    return alive


@pytest.mark.parametrize("while_importing", [True, False], ids=["early", "at work"])
@pytest.mark.parametrize(
    ("number", "whole_group"), [(signal.SIGINT, True), (signal.SIGINT, False), (signal.SIGTERM, False)]
)
def test_all_processes_end_at_once_and_in_silence(
    number: signal.Signals, whole_group: bool, while_importing: bool, tmp_path: Path
) -> None:
    """As a terminal interrupts (the whole group), and as a scheduler ends what it has started."""
    process = subprocess.Popen(
        [sys.executable, *PATTERN, "--out", str(tmp_path / "out")],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # A shell lets what it runs in the background ignore interrupts, and the tests with it.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        assert process.stdout is not None
        assert "runs of 200 epochs, 2 at a time" in process.stdout.readline()
        while len(group(process.pid)) < 3:  # the first child is about to import
            time.sleep(0.05)
        time.sleep(0.5 if while_importing else 6)
        (os.killpg if whole_group else os.kill)(process.pid, number)
        _, err = process.communicate(timeout=20)
        assert process.returncode != 0
        lines = [line for line in err.splitlines() if line.strip()]
        assert lines == (["interrupted"] if number == signal.SIGINT else [])
        deadline = time.monotonic() + 5  # the helper of the children notices by itself that they are gone
        while group(process.pid) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert group(process.pid) == []
    finally:
        for left in group(process.pid):
            os.kill(left, signal.SIGKILL)
