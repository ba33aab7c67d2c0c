"""What a rank did when: spans of its time, measured always, and kept where somebody records."""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable
from types import TracebackType

FIELDS = NAME, STARTED, ENDED, STEP, BYTES = range(5)  # of a span, each an int of 64 bits
LARGEST = 200_000  # spans that a rank keeps, in 8 MB


class Recorder:
    """Keeps the spans of one rank, by their end, up to ``largest``; ``left_out`` counts those that came later.

    ``clock`` gives nanoseconds from any origin. ``values`` holds the ``FIELDS`` of each span one after the other, with
    the index into ``names`` for the name.
    """

    def __init__(self, clock: Callable[[], int] = time.perf_counter_ns, largest: int = LARGEST) -> None:
        self.clock, self.largest = clock, largest
        self.values = array("q")
        self.left_out = 0
        self._indices: dict[str, int] = {}

    @property
    def count(self) -> int:
        """Spans that are kept."""
        return len(self.values) // len(FIELDS)

    @property
    def names(self) -> list[str]:
        """The names that occur."""
        return list(self._indices)

    def add(self, name: str, started: int, ended: int, step: int = 0, nbytes: int = 0) -> None:
        """One more span, in nanoseconds of the clock."""
        if self.count >= self.largest:
            self.left_out += 1
            return
        index = self._indices.setdefault(name, len(self._indices))
        self.values.extend((index, started, ended, step, nbytes))


class Span:
    """What runs inside a ``with`` is measured: ``seconds`` tells how long it took, a ``recorder`` keeps when it was.

    ``step`` and ``nbytes`` say what it belongs to; ``nbytes`` may be set until the end. On a GPU the span ends when the
    work has been queued, unless something in it waits for the device, as an exchange does.

    >>> recorder = Recorder(clock=iter([100, 350]).__next__)
    >>> with Span("encode", recorder, step=1) as span:
    ...     span.nbytes = 32
    >>> round(span.seconds * 1e9), recorder.names, list(recorder.values)
    (250, ['encode'], [0, 100, 350, 1, 32])
    """

    __slots__ = ("_clock", "_name", "_recorder", "_started", "_step", "nbytes", "seconds")

    def __init__(self, name: str, recorder: Recorder | None = None, step: int = 0, nbytes: int = 0) -> None:
        self._name, self._recorder, self._step, self.nbytes = name, recorder, step, nbytes
        self._clock = time.perf_counter_ns if recorder is None else recorder.clock

    def __enter__(self) -> Span:
        self._started = self._clock()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        ended = self._clock()
        self.seconds = (ended - self._started) / 1e9
        if self._recorder is not None:
            self._recorder.add(self._name, self._started, ended, self._step, self.nbytes)
