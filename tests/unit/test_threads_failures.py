"""Ranks that are threads end together: whatever one of them does, no other waits without end, and none is left."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator

import pytest
import torch

from mpidec import Topology, UserError
from mpidec.transport import threads
from mpidec.transport.threads import ThreadTransport, run

pytestmark = pytest.mark.timeout(60)

BYTES = torch.zeros(8, dtype=torch.uint8)


def exchange(ranks: ThreadTransport) -> None:
    ring = Topology.named("complete", ranks.size)
    ranks.exchange(BYTES, ring.listeners(ranks.rank), ring.neighbors(ranks.rank)).wait()


WAITS = {
    "exchange": exchange,
    "all_reduce": lambda ranks: ranks.all_reduce(torch.ones(3)),
    "all_gather": lambda ranks: ranks.all_gather(BYTES),
    "broadcast": lambda ranks: ranks.broadcast(torch.ones(3)),
    "all_gather_objects": lambda ranks: ranks.all_gather_objects("an object"),
    "broadcast_object": lambda ranks: ranks.broadcast_object("an object"),
    "all_reduce_flags": lambda ranks: ranks.all_reduce_flags(torch.tensor([True])),
    "barrier": lambda ranks: ranks.barrier(),
}
EVERY_WAIT = pytest.mark.parametrize("wait", WAITS.values(), ids=WAITS)


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    before, hooks, cores = threading.enumerate(), (sys.excepthook, threading.excepthook), torch.get_num_threads()
    yield
    assert set(threading.enumerate()) <= set(before)
    assert (sys.excepthook, threading.excepthook) == hooks
    assert torch.get_num_threads() == cores


def shown(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


@EVERY_WAIT
@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_the_error_of_a_rank_is_the_callers_and_names_it(n: int, wait: Callable[[ThreadTransport], None]) -> None:
    error = KeyError("what went wrong")

    def work(ranks: ThreadTransport) -> None:
        if ranks.rank == n - 1:
            time.sleep(0.02)
            raise error
        wait(ranks)

    with pytest.raises(KeyError) as caught:
        run(work, n)
    assert caught.value is error
    assert f"rank {n - 1} of {n}" in shown(caught.value)
    assert "raise error" in shown(caught.value), "the traceback leads into the rank"


def test_the_first_error_counts_and_no_handler_of_another_rank_stays_behind() -> None:
    cleaned = []

    def work(ranks: ThreadTransport) -> None:
        if ranks.rank == 1:
            time.sleep(0.05)
            raise UserError("the first mistake")
        try:
            while True:
                try:
                    ranks.barrier()
                except Exception:
                    cleaned.append("taken for an error")
        finally:
            cleaned.append(ranks.rank)
            raise RuntimeError("a consequence")

    with pytest.raises(UserError, match=r"^the first mistake\n"):
        run(work, 3)
    assert sorted(cleaned) == [0, 2]


def test_python_310_shows_the_rank_as_a_cause(monkeypatch) -> None:
    error = KeyError("what went wrong")
    error.__cause__ = OSError("the root")
    monkeypatch.setattr(threads.sys, "version_info", (3, 10))
    with pytest.raises(KeyError) as caught:
        threads._raise_named(2, error, 4)
    monkeypatch.undo()
    assert caught.value is error
    assert [word in shown(error) for word in ("the root", "rank 2 of 4", "what went wrong")] == [True] * 3


@EVERY_WAIT
@pytest.mark.parametrize("n", [2, 3, 5])
def test_a_rank_that_has_finished_is_not_waited_for(n: int, wait: Callable[[ThreadTransport], None]) -> None:
    def work(ranks: ThreadTransport) -> None:
        if ranks.rank == 1:
            time.sleep(0.02)
            return
        wait(ranks)

    with pytest.raises(RuntimeError, match=r"rank \d waits in .* for rank 1, which has finished: all ranks must run"):
        run(work, n)


def test_what_a_finished_rank_has_sent_arrives_all_the_same() -> None:
    def work(ranks: ThreadTransport) -> list[int]:
        if ranks.rank == 0:
            ranks.exchange(BYTES + 7, [1], [])
            return []
        time.sleep(0.05)
        return ranks.exchange(BYTES, [], [0]).wait()[0].tolist()

    assert run(work, 2) == [[], [7] * 8]


@pytest.fixture
def _interruptible() -> Iterator[None]:
    """Also where the tests run in the background, where shells switch Ctrl-C off."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_interruptible")
@pytest.mark.parametrize(("n", "waiting"), [(1, 0), (3, 1), (3, 2)])
def test_an_interrupt_wakes_and_ends_all(n: int, waiting: int) -> None:
    """Ctrl-C reaches the main thread alone; the ranks that wait end at once, the others at their next call."""
    ended = []

    def work(ranks: ThreadTransport) -> None:
        try:
            if ranks.rank == n - 1:
                time.sleep(0.05)
                signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            while ranks.rank >= waiting:
                time.sleep(0.01)
                ranks.exchange(BYTES, [], []) if n > 1 else ranks.barrier()
            ranks.barrier()
        finally:
            ended.append(ranks.rank)

    with pytest.raises(KeyboardInterrupt):
        run(work, n)
    assert sorted(ended) == list(range(n))


def test_a_second_interrupt_leaves_a_rank_that_makes_no_call() -> None:
    program = """
import signal, time
from mpidec.world import run_on_threads

def work(world):
    while True:
        time.sleep(1000)

signal.signal(signal.SIGINT, signal.default_int_handler)
print("ready", flush=True)
run_on_threads(work, 2)
"""
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    assert process.poll() is None, "the first one waits for the ranks"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert err.rstrip().endswith("KeyboardInterrupt")


def test_a_system_without_more_threads_leaves_none(monkeypatch) -> None:
    start = threading.Thread.start

    def start_two(thread: threading.Thread) -> None:
        if thread.name == "rank 2":
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_two)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        run(lambda ranks: ranks.barrier(), 3)


def test_an_exit_and_an_abort_of_one_rank_reach_the_caller() -> None:
    def leave(ranks: ThreadTransport) -> None:
        if ranks.rank == 1:
            sys.exit("enough")
        ranks.barrier()

    def abort(ranks: ThreadTransport) -> None:
        try:
            if ranks.rank == 1:
                ranks.abort(3)
        except SystemExit:
            pass
        ranks.barrier()

    with pytest.raises(SystemExit, match="enough"):
        run(leave, 3)
    with pytest.raises(SystemExit) as caught:
        run(abort, 3)
    assert caught.value.code == 3


def test_a_breakpoint_in_a_rank_lets_the_others_wait() -> None:
    program = """
from mpidec.world import run_on_threads

def work(world):
    everyone = world.transport.all_gather_objects(world.rank)
    if world.rank == 1:
        breakpoint()
    world.transport.barrier()
    return everyone

print(run_on_threads(work, 3))
"""
    typed = "import time; time.sleep(0.1)\np 'seen', world.rank, everyone\nc\n"
    done = subprocess.run(
        [sys.executable, "-c", program], input=typed, capture_output=True, text=True, check=False, timeout=50
    )
    assert "('seen', 1, [0, 1, 2])" in done.stdout, done.stdout + done.stderr
    assert "[[0, 1, 2], [0, 1, 2], [0, 1, 2]]" in done.stdout, done.stdout + done.stderr
