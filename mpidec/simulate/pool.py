"""Work for several processes, which never outlive the one that asked for it."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import TypeVar

from tqdm import tqdm

Job = TypeVar("Job")
Result = TypeVar("Result")


def all_done(
    work: Callable[[Job], Result], jobs: Sequence[Job], processes: int
) -> Generator[tuple[Job, Result], None, None]:
    """Every job with its result, as they come, ``processes`` at a time; from the main thread.

    When the generator is closed, and at an error, an interrupt or a SIGTERM, the processes end at once, whatever is
    still to be done.
    """
    # The children inherit the limit; each uses one core.
    os.environ["OMP_NUM_THREADS"] = "1"
    before = set(multiprocessing.active_children())
    # A launcher or a scheduler asks like that; without a handler nobody would be left to end the children.
    asked = signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    pool, finished = ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")), False
    try:
        # A terminal interrupts the whole group: the children, born deaf to it, leave the word to this process.
        heard = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            futures = {pool.submit(work, job): job for job in jobs}
        finally:
            signal.signal(signal.SIGINT, heard)
        for done in tqdm(
            as_completed(futures), total=len(jobs), unit="run", disable=not sys.stderr.isatty(), leave=False
        ):
            yield futures[done], done.result()
        finished = True
    finally:
        for child in set(multiprocessing.active_children()) - before if not finished else ():
            child.terminate()
        pool.shutdown()
        signal.signal(signal.SIGTERM, asked)
