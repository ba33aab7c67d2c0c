"""What several processes work at ends when nobody waits for it any more."""

from __future__ import annotations

import contextlib
import math
import multiprocessing
import os
import signal
import time

import pytest

from mpidec.simulate.pool import all_done


def test_every_job_comes_back_with_its_result() -> None:
    handlers = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    assert sorted(all_done(math.factorial, range(7), 2)) == [(n, math.factorial(n)) for n in range(7)]
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == handlers
    assert not multiprocessing.active_children()


def test_whoever_stops_listening_does_not_wait_for_the_queue() -> None:
    jobs = [0.0, *[30.0] * 10]
    started = time.monotonic()
    with contextlib.closing(all_done(time.sleep, jobs, 2)) as done:
        assert next(done) == (0.0, None)
    assert time.monotonic() - started < 25, "less than one job, let alone five of them"
    assert not multiprocessing.active_children()


def test_an_interrupt_is_left_to_this_process() -> None:
    """The children would print what they were at, a traceback each."""
    assert list(all_done(signal.getsignal, [signal.SIGINT], 1)) == [(signal.SIGINT, signal.SIG_IGN)]


def test_the_error_of_a_job_is_raised_here() -> None:
    started = time.monotonic()
    with pytest.raises(ValueError, match="negative values"):
        list(all_done(math.factorial, [-1], 2))
    assert time.monotonic() - started < 25


def test_a_process_that_is_killed_is_an_error_and_no_hang() -> None:
    with pytest.raises(Exception, match="terminated abruptly"):
        list(all_done(os._exit, [1], 1))
