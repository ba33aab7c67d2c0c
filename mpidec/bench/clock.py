"""How long something takes, as the median of several runs; what is compared takes turns, so that noise hits both."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Sequence

Work = Callable[[], object]
SHORTEST = 2e-3  # seconds that one sample lasts at least: shorter work is repeated inside it


def seconds(works: Sequence[Work], samples: int = 15, budget: float = 2.0) -> list[float]:
    """Median seconds of one call of each of the ``works``, which take turns ``samples`` times.

    Fewer samples (3 at least) are taken where all of them would last longer than ``budget`` seconds.
    """
    repeats = [_repeats(work) for work in works]
    taken: list[list[float]] = [[] for _ in works]
    collecting = gc.isenabled()
    gc.disable()
    try:
        started = time.perf_counter()
        for number in range(samples):
            if number >= 3 and time.perf_counter() - started > budget:
                break
            for work, times, into in zip(works, repeats, taken, strict=True):
                into.append(_timed(work, times))
    finally:
        if collecting:
            gc.enable()
    return [statistics.median(one) for one in taken]


def _repeats(work: Work) -> int:
    """How many calls make one sample; the first call of all, which makes buffers, is none of them."""
    work()
    return max(1, round(SHORTEST / max(_timed(work, 1), 1e-9)))


def _timed(work: Work, times: int) -> float:
    started = time.perf_counter()
    for _ in range(times):
        work()
    return (time.perf_counter() - started) / times
