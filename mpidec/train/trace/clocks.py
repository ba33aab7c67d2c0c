"""How the clocks of the ranks differ: short messages to rank 0 and back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mpidec.transport.base import Transport

ROUNDS = 20  # the first ones wait for the ranks before, the fastest one counts
Times = NDArray[np.int64]


@dataclass(frozen=True)
class Reading:
    """All in nanoseconds: ``offset``, to be added to this rank's clock for that of rank 0, as it was ``at`` some time.

    The clock of rank 0 was read at some moment of the ``round_trip``, half of which is what the offset may be wrong by.
    """

    at: int
    offset: int
    round_trip: int

    @classmethod
    def of(cls, rounds: Sequence[tuple[int, int, int]]) -> Reading:
        """The fastest of ``rounds``: when the own clock sent, what that of rank 0 was then, and when the answer came.

        On the way there and back a message takes equally long. Where the true offset may be none, it is none: the ranks
        of one host share a clock, and an estimate would only tear them apart.

        >>> Reading.of([(100, 7_150, 900), (1_000, 8_070, 1_100), (2_000, 9_500, 2_900)])
        Reading(at=1050, offset=7020, round_trip=100)
        >>> Reading.of([(100, 120, 190)]).offset
        0
        """
        sent, read, received = min(rounds, key=lambda times: times[2] - times[0])
        at, round_trip = (sent + received) // 2, received - sent
        offset = read - at
        return cls(at, offset if 2 * abs(offset) > round_trip else 0, round_trip)


def compare(transport: Transport, clock: Callable[[], int]) -> Reading:
    """The ``clock`` of this rank against that of rank 0; a collective call, in which rank 0 answers one after another.

    It takes some ``ROUNDS`` messages of 8 bytes for each rank.
    """
    rounds = []
    for rank in range(1, transport.size):
        for _ in range(ROUNDS):
            if transport.rank == 0:
                _pass(transport, torch.zeros(1, dtype=torch.int64), [], [rank])
                _pass(transport, torch.tensor([clock()]), [rank], [])
            elif transport.rank == rank:
                sent = clock()
                read = _pass(transport, torch.zeros(1, dtype=torch.int64), [0], [0])
                rounds.append((sent, read, clock()))
    return Reading.of(rounds) if rounds else Reading(clock(), 0, 0)


def aligned(times: Times, first: Reading, last: Reading) -> Times:
    """``times`` of this rank's clock as rank 0's clock tells them, in nanoseconds.

    Between the two readings the offset grows evenly, as that of clocks of slightly different speed does; outside it
    stays. Order is kept.
    """
    if last.at <= first.at:
        return times + first.offset
    passed = np.clip((times - first.at) / (last.at - first.at), 0.0, 1.0)
    shifts: Times = np.rint(passed * (last.offset - first.offset)).astype(np.int64)
    return times + first.offset + shifts


def _pass(transport: Transport, value: Tensor, to: Sequence[int], sources: Sequence[int]) -> int:
    """Send ``value``, one int64, or receive one, which is returned, or both."""
    exchange = transport.exchange(value.view(torch.uint8), to, sources)
    received = [int(buffer.view(torch.int64)) for buffer in exchange.wait().values()]
    exchange.release()
    return received[0] if received else 0
