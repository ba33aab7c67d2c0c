"""What a step costs by latency and bandwidth: the model behind ``python -m mpidec.simulate scale``.

A message of m bytes takes ``latency + m / bandwidth`` (Hockney 1994, Parallel Computing 20:389). Every rank has a link
of its own, which sends and receives at once. From that follow, over n ranks:

- gossip with k messages a rank, all posted at once: ``latency + k m / bandwidth``;
- all-reduce: the cheaper of the ring, ``2 (n - 1) latency + 2 (n - 1) / n m / bandwidth`` (Patarasuk and Yuan 2009,
  J. Parallel Distrib. Comput. 69:117), and recursive halving and doubling, which sends the same bytes in
  ``2 ceil(log2 n)`` rounds (Thakur, Rabenseifner and Gropp 2005, Int. J. High Perform. Comput. Appl. 19:49; where n is
  no power of two, in the manner of Bruck et al. 1997, IEEE Trans. Parallel Distrib. Syst. 8:1143). With equal bytes
  the second is never the dearer one here; what speaks for the ring on real networks is contention;
- broadcast: the cheaper of a binomial tree, ``ceil(log2 n) (latency + m / bandwidth)``, and scatter with all-gather,
  ``2 ceil(log2 n) latency + 2 (n - 1) / n m / bandwidth`` (Thakur et al. 2005);
- hierarchical: all-reduce of float32 values among the ranks of a host over ``local_bandwidth``, compressed gossip on a
  ring of hosts, one rank of each speaking over its own link, then the broadcast of its float32 values inside the host.
  Hosts are filled one after the other; the fullest decides, since all of it grows with the ranks of a host.

Left out: contention in the network and ranks that share a link, stragglers, the arithmetic of sums and of mixing,
communication that overlaps with computing, and that gossip and compression may need more steps for the same accuracy.
Encoding takes as long as the user says. Latency inside a host is that between hosts, which it hardly exceeds. A model
is one segment, so the few bytes that a compressor spends for each further parameter tensor are not counted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import NamedTuple

import torch

from mpidec.compress.base import Compressor
from mpidec.compress.dense import Identity
from mpidec.simulate.options import Scale
from mpidec.topology import Topology

GRAPHS = {"ring": "ring", "torus": "torus", "expander": "expander", "one-peer": "one_peer_exponential"}
VALUE_BYTES = torch.float32.itemsize  # of what an all-reduce sums: values, without a header


class Traffic(NamedTuple):
    """Messages one after the other, ``rounds`` of them, in which the busiest rank sends ``nbytes`` in all."""

    rounds: int
    nbytes: float

    def seconds(self, latency: float, bandwidth: float) -> float:
        """With a ``latency`` in seconds and a ``bandwidth`` in bytes a second."""
        return self.rounds * latency + self.nbytes / bandwidth


def gossip(degree: int, nbytes: int) -> Traffic:
    """A message of ``nbytes`` to each of ``degree`` ranks at once."""
    return Traffic(1, degree * nbytes) if degree else Traffic(0, 0)


def all_reduce(ranks: int, nbytes: int) -> Traffic:
    """The sum of ``nbytes`` of values over ``ranks``, on all of them."""
    # Both ways send the same bytes, so the one with fewer rounds is cheaper on every link.
    return Traffic(2 * min(ranks - 1, _doublings(ranks)), 2 * (ranks - 1) / ranks * nbytes)


def broadcasts(ranks: int, nbytes: int) -> tuple[Traffic, Traffic]:
    """``nbytes`` of one rank to all ``ranks``, by a tree, and by scatter with all-gather."""
    rounds = _doublings(ranks)
    return Traffic(rounds, rounds * nbytes), Traffic(2 * rounds, 2 * (ranks - 1) / ranks * nbytes)


def _doublings(ranks: int) -> int:
    """``ceil(log2 ranks)``."""
    return (ranks - 1).bit_length()


def degree(graph: Topology) -> int:
    """Messages that the busiest rank sends or receives in the first step of ``graph``, whichever is more."""
    first = graph.at(1)
    return max(max(len(first.neighbors(rank)), len(first.listeners(rank))) for rank in range(graph.size))


@dataclass(frozen=True)
class Cost:
    """Of one step: ``compute`` and ``fixed`` seconds, and ``nbytes`` over a link of the bandwidth that is asked for.

    ``fixed`` is communication at any bandwidth: latencies, encoding, and what stays inside a host, ``local_bytes``.
    ``degree`` counts the messages of a rank, ``None`` where all ranks sum.
    """

    degree: int | None
    compute: float
    fixed: float
    nbytes: float
    local_bytes: float = 0.0

    def communication(self, bandwidth: float) -> float:
        """Seconds of the step that are communication, over links of ``bandwidth`` bytes a second."""
        return self.fixed + self.nbytes / bandwidth

    def step(self, bandwidth: float) -> float:
        """Seconds of the whole step."""
        return self.compute + self.communication(bandwidth)


@dataclass(frozen=True)
class Model:
    """The machine and the messages: times in seconds, bandwidths in bytes a second, ``parameters`` in entries."""

    parameters: int
    compressor: Compressor
    compute: float
    encode: float
    latency: float
    local_bandwidth: float
    ranks_per_host: int

    @classmethod
    def of(cls, chosen: Scale, compressor: Compressor) -> Model:
        """What the options say; the bandwidth stays open until a ``Cost`` is asked for its seconds."""
        names = {field.name for field in fields(cls)} - {"compressor"}
        return cls(compressor=compressor, **{name: getattr(chosen, name) for name in names})

    def nbytes(self, compressed: bool) -> int:
        """Bytes of one message, header included."""
        return (self.compressor if compressed else Identity()).layout(self.parameters, torch.float32).nbytes

    def all_reduce(self, ranks: int) -> Cost:
        """Of a step that sums float32 values over all ``ranks``."""
        traffic = all_reduce(ranks, VALUE_BYTES * self.parameters)
        return Cost(None, self.compute, traffic.rounds * self.latency, traffic.nbytes)

    def gossip(self, degree: int, compressed: bool) -> Cost:
        """Of a step with ``degree`` messages a rank."""
        traffic = gossip(degree, self.nbytes(compressed))
        encode = self.encode if compressed and degree else 0.0
        return Cost(degree, self.compute, encode + traffic.rounds * self.latency, traffic.nbytes)

    def hierarchical(self, ranks: int) -> Cost:
        """Of a step with the mean inside each host and compressed gossip on a ring of hosts."""
        inside, hosts = min(ranks, self.ranks_per_host), math.ceil(ranks / self.ranks_per_host)
        between = self.gossip(degree(Topology.named("ring", hosts)), compressed=True)
        values = VALUE_BYTES * self.parameters
        summed = all_reduce(inside, values)
        # A host alone has nothing to mix with: what its ranks have summed is the result already.
        spread = min(broadcasts(inside, values), key=self._local_seconds) if hosts > 1 else Traffic(0, 0)
        local = self._local_seconds(summed) + self._local_seconds(spread)
        return Cost(between.degree, self.compute, between.fixed + local, between.nbytes, summed.nbytes + spread.nbytes)

    def _local_seconds(self, traffic: Traffic) -> float:
        return traffic.seconds(self.latency, self.local_bandwidth)


def shorter(one: Cost, other: Cost, margin: float = 0.0) -> tuple[float, float] | None:
    """Between which bandwidths a step of ``other`` takes more than ``1 + margin`` times as long as one of ``one``.

    Bytes a second, 0 and infinity where there is no such end; ``None`` where there are none. Both costs are straight
    lines in the inverse of the bandwidth, so they cross once at most.
    """
    fixed = other.compute + other.fixed - (1 + margin) * (one.compute + one.fixed)
    nbytes = other.nbytes - (1 + margin) * one.nbytes
    if max(fixed, nbytes) <= 0:
        return None
    return (-nbytes / fixed if nbytes < 0 else 0.0), (nbytes / -fixed if fixed < 0 else math.inf)
