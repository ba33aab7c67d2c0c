"""Where the ranks of one process meet: messages under way, collective calls, and who has finished or failed.

No rank waits without end: where one fails the others stop, and where the calls of the ranks do not fit together, one of
them says so. There are no time limits, so that a rank may stay at a breakpoint.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

SAME = "all ranks must run the same program"


class Stopped(BaseException):
    """Ends a rank because another one failed. Not an ``Exception``: no handler of the user's should take it for one."""


@dataclass
class _Meeting:
    """A collective call: its name, what each rank brings, and what came of it when the last one arrived."""

    what: str = ""
    brought: dict[int, Any] = field(default_factory=dict)
    result: Any = None


class Hub:
    """What ``size`` ranks share, behind one lock; each is one thread.

    ``failure``: the rank that failed first, and its error.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.failure: tuple[int, BaseException] | None = None
        self._lock = threading.Lock()
        self._wakes = [threading.Condition(self._lock) for _ in range(size)]
        self._caller = threading.Condition(self._lock)
        # The n-th message from one rank to another answers the n-th receive there, whichever is waited for first.
        self._sent, self._asked = Counter[tuple[int, int]](), Counter[tuple[int, int]]()
        self._mail: dict[tuple[int, int, int], Tensor] = {}
        self._meeting = _Meeting()
        self._waits: dict[int, tuple[str, Callable[[], set[int]]]] = {}
        self._finished: set[int] = set()
        self._stopped = False

    def post(self, rank: int, buffers: dict[int, Tensor], sources: Sequence[int]) -> dict[int, int]:
        """Hand each of ``buffers`` to the rank it is for; returns the number of the message due from each source."""
        with self._lock:
            self._end_if_stopped()
            for peer, buffer in buffers.items():
                self._mail[rank, peer, self._sent[rank, peer]] = buffer
                self._sent[rank, peer] += 1
                self._wakes[peer].notify_all()
            due = {peer: self._asked[peer, rank] for peer in sources}
            self._asked.update((peer, rank) for peer in sources)
            return due

    def receive(self, rank: int, source: int, number: int) -> Tensor:
        """Message ``number`` from ``source`` to ``rank``, once it is there."""
        key = source, rank, number
        with self._lock:
            self._wait(rank, "exchange", lambda: set() if key in self._mail else {source})
            return self._mail.pop(key)

    def meet(self, rank: int, what: str, value: Any, combine: Callable[[list[Any]], Any]) -> Any:
        """What ``combine`` makes, once for all, of the values that the ranks bring, by rank.

        Every rank is held here while it runs, so that it may read what is theirs; its result must be nobody's own.
        """
        with self._lock:
            self._end_if_stopped()
            meeting = self._meeting
            if meeting.brought and meeting.what != what:
                other = min(meeting.brought)
                raise RuntimeError(f"rank {rank} is in {what}, but rank {other} in {meeting.what}: {SAME}")
            brought = meeting.brought | {rank: value}
            if len(brought) == self.size:
                meeting.result = combine([brought[one] for one in range(self.size)])
                self._meeting = _Meeting()
                self._wake_all()
            meeting.what, meeting.brought = what, brought
            self._wait(rank, what, lambda: set(range(self.size)) - meeting.brought.keys())
            return meeting.result

    def finish(self, rank: int) -> None:
        """``rank`` makes no further call."""
        with self._lock:
            self._finished.add(rank)
            self._wake_all()

    def wait_for_finished(self, count: int) -> None:
        """Wait for ``count`` ranks to finish: what the caller of the threads does, whom Ctrl-C may wake."""
        with self._lock:
            while len(self._finished) < count:
                self._caller.wait()

    def fail(self, rank: int, error: BaseException) -> None:
        """Stop the run because of ``error``, unless it has stopped already."""
        with self._lock:
            if not self._stopped:
                self.failure = rank, error
                self._stop()

    def stop(self) -> None:
        """End every rank that waits, and the others at their next call."""
        with self._lock:
            self._stop()

    def _stop(self) -> None:
        self._stopped = True
        self._wake_all()

    def _wake_all(self) -> None:
        for wake in (*self._wakes, self._caller):
            wake.notify_all()

    def _end_if_stopped(self) -> None:
        if self._stopped:
            raise Stopped

    def _wait(self, rank: int, what: str, missing: Callable[[], set[int]]) -> None:
        """Leave the lock to the others until no rank is ``missing``."""
        self._waits[rank] = what, missing
        try:
            while missing():
                self._end_if_stopped()
                self._refuse_endless(rank)
                self._wakes[rank].wait()
        finally:
            del self._waits[rank]

    def _refuse_endless(self, rank: int) -> None:
        """Raise ``RuntimeError`` where what ``rank`` waits for can never come."""
        what, missing = self._waits[rank]
        for gone in missing() & self._finished:
            raise RuntimeError(f"rank {rank} waits in {what} for rank {gone}, which has finished: {SAME}")
        waits = sorted(self._waits.items())
        if len(waits) + len(self._finished) == self.size and all(missing() for _, (_, missing) in waits):
            told = (f"rank {one} in {what} for {sorted(missing())}" for one, (what, missing) in waits)
            raise RuntimeError(f"the ranks wait for each other ({', '.join(told)}): {SAME}")
