"""Latency and bandwidth between two ranks, measured over the transport that carries the messages of training."""

from __future__ import annotations

import dataclasses
import socket
import statistics
import time
from dataclasses import dataclass

import torch
from torch import Tensor

from mpidec.errors import UserError
from mpidec.launcher import launched
from mpidec.simulate.options import Scale
from mpidec.transport.base import Transport
from mpidec.world import init

COMMAND = "mpirun -np 2 python -m mpidec.simulate scale --measure"
SHORT, LONG = 8, 2**23  # bytes
REPEATS = {SHORT: 500, LONG: 21}  # round trips, of which the median counts
WARM_UP = 5  # round trips before: buffers are made, and connections set up


@dataclass(frozen=True)
class Ping:
    """``latency`` in seconds, ``bandwidth`` in bytes a second, and the ``hosts`` of the two ranks."""

    latency: float
    bandwidth: float
    hosts: tuple[str, str]

    def __str__(self) -> str:
        first, second = self.hosts
        where = (
            f"two ranks of one host, {first}, so of its memory: for the network place them on two hosts"
            if first == second
            else f"the hosts {first} and {second}"
        )
        return f"measured: latency {self.latency * 1e6:.1f} us, bandwidth {self.bandwidth / 1e9:.2f} GB/s, of {where}"


def measured(chosen: Scale) -> Scale | None:
    """The same options with latency and bandwidth as measured, which are printed, on rank 0; ``None`` on the others.

    Raises ``UserError`` without two ranks, where one of the two numbers is given as well, and as ``measure`` does.
    """
    for name in ("latency", "bandwidth"):
        if getattr(chosen, name) != getattr(Scale, name):
            raise UserError(f"--measure finds the {name} itself: leave out --measure or --{name}")
    launch = launched()
    if launch is None or launch.size < 2:
        alone = "no launcher started this process" if launch is None else "the launcher started one process"
        raise UserError(f"--measure sends messages between two ranks, but {alone}: run {COMMAND}")
    found = measure(init(device="cpu").transport)
    if found is None:
        return None
    print(f"{found}\n", flush=True)
    return dataclasses.replace(chosen, latency=found.latency, bandwidth=found.bandwidth)


def measure(transport: Transport) -> Ping | None:
    """What messages between ranks 0 and 1 take; every rank calls it, the others wait, and rank 0 alone gets a result.

    A message goes there and comes back: half of the median time of a round trip of 8 bytes is the latency, and what
    one of 8 MiB takes longer gives the bandwidth. The time that Python takes to post a message is in it.

    Raises ``UserError`` where the long messages took no longer than the short ones.
    """
    hosts = transport.all_gather_objects(socket.gethostname())
    seconds = {size: _one_way(transport, size) for size in (SHORT, LONG)} if transport.rank < 2 else {}
    transport.barrier()
    if transport.rank != 0:
        return None
    return from_seconds(seconds[SHORT], seconds[LONG], (hosts[0], hosts[1]))


def from_seconds(short: float, long: float, hosts: tuple[str, str]) -> Ping:
    """The two numbers from what a ``short`` and a ``long`` message take, in seconds. Raises as ``measure`` does."""
    if long <= short:
        raise UserError(
            f"{LONG} bytes took no longer than {SHORT}, so the ranks are too busy for a measurement: run it again, or "
            "give --latency and --bandwidth"
        )
    return Ping(short, (LONG - SHORT) / (long - short), hosts)


def _one_way(transport: Transport, size: int) -> float:
    """Seconds that ``size`` bytes take from one of the two ranks to the other."""
    buffer, times = torch.zeros(size, dtype=torch.uint8), []
    for _ in range(WARM_UP + REPEATS[size]):
        started = time.perf_counter()
        for turn in (0, 1):
            _pass(transport, buffer, sends=turn == transport.rank)
        times.append(time.perf_counter() - started)
    return statistics.median(times[WARM_UP:]) / 2


def _pass(transport: Transport, buffer: Tensor, sends: bool) -> None:
    peer = [1 - transport.rank]
    exchange = transport.exchange(buffer, peer if sends else [], [] if sends else peer)
    exchange.wait()
    exchange.release()
