"""What an algorithm sees of the other ranks: two verbs, ``mix`` and ``sum``, here over a transport.

Both accumulate in place and in rank order, so that a rank of a real job and a row of a simulation (``rows.py``) land on
the same bits.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Protocol

import torch
from torch import Tensor

from mpidec.compress.message import Message
from mpidec.errors import UserError
from mpidec.noise import uniform
from mpidec.spans import Recorder, Span
from mpidec.topology import Topology
from mpidec.transport.base import Collectives, Exchange, Transport


def sum_bytes(message: Message) -> int:
    """Bytes that a rank hands over to sum ``message``: all of it to a gather, its bare values to an all-reduce."""
    if not message.codec.summable:
        return message.nbytes
    values = message.layout.fields["values"]
    return values.count * max(4, values.dtype.itemsize)


def _summands(message: Message) -> Tensor:
    """A copy of the values; 16-bit sums would lose digits, and MPI knows none."""
    values = message.part("values")
    return values.to(torch.promote_types(values.dtype, torch.float32), copy=True)


class PendingMix(Protocol):
    """A mix whose messages are under way."""

    def add_to(self, out: Tensor, alpha: float = 1.0) -> None:
        """Wait for the messages, then ``out += alpha * sum_j W[i, j] * decode(message_j)``. Once only."""


class Communicator(ABC):
    """The ranks of a job and their graph. ``step`` and ``flags`` go into the header of each message.

    Flags are bits that a rank wants its neighbours to know, where no collective could tell them.

    ``bytes_sent``: bytes that this rank (in a simulation: all ranks) has handed to the transport so far.
    ``flags_seen``: every flag that arrived so far.
    """

    def __init__(self, topology: Topology, seed: int = 0) -> None:
        self.topology, self.seed = topology, seed
        self.size = topology.size
        self.step = self.flags = self.flags_seen = self.bytes_sent = 0

    @abstractmethod
    def mix_start(self, message: Message) -> PendingMix:
        """Post ``message`` to the neighbors; its buffer must not be written before the mix has been added."""

    @abstractmethod
    def sum(self, message: Message, out: Tensor, alpha: float = 1.0) -> None:
        """``out += alpha * sum_j decode(message_j)`` over all ranks; a mean with ``alpha = 1 / size``."""

    @abstractmethod
    def noise(self, like: Tensor) -> Tensor:
        """Uniform draws in [0, 1) that depend on seed, step, rank and flat index, and on nothing else."""

    def mix(self, message: Message, out: Tensor, alpha: float = 1.0) -> None:
        """``out += alpha * sum_j W[i, j] * decode(message_j)`` over this rank and its neighbors."""
        self.mix_start(message).add_to(out, alpha)


class Network(Communicator):
    """One rank of a real job.

    ``collectives`` carry ``sum`` where they are not the transport's own. ``seconds_waiting``: time spent inside the
    transport. ``recorder``: what keeps the spans of this rank; set it before an optimizer is made.

    Raises ``RuntimeError`` when a message of another step or of another layout arrives.
    """

    def __init__(
        self, transport: Transport, topology: Topology, collectives: Collectives | None = None, seed: int = 0
    ) -> None:
        super().__init__(topology, seed)
        if topology.size != transport.size:
            raise UserError(
                f"the topology has {topology.size} ranks, but the job has {transport.size}: build it for the job's size"
            )
        self.transport, self.rank = transport, transport.rank
        self.collectives: Collectives = collectives or transport
        self.seconds_waiting = 0.0
        self.recorder: Recorder | None = None

    def mix_start(self, message: Message) -> PendingNetworkMix:
        """See ``Communicator.mix_start``."""
        graph = self.topology.at(self.step)
        message.stamp(self.step, self.flags)
        assert message.buffer.nbytes == message.nbytes, "what is handed over is what is reported"
        listeners = graph.listeners(self.rank)
        sent = message.nbytes * len(listeners)
        with self.span("exchange post", sent) as span:
            exchange = self.transport.exchange(message.buffer, listeners, graph.neighbors(self.rank))
        self.seconds_waiting += span.seconds
        self.bytes_sent += sent
        return PendingNetworkMix(self, exchange, message, graph)

    def sum(self, message: Message, out: Tensor, alpha: float = 1.0) -> None:
        """See ``Communicator.sum``: an all-reduce where the payload can be summed as it is, else an all-gather."""
        sent = sum_bytes(message) if self.size > 1 else 0
        self.bytes_sent += sent
        if message.codec.summable:
            with self.span("all-reduce", sent) as span:
                values = _summands(message)
                assert values.nbytes == sum_bytes(message), "what is handed over is what is reported"
                self.collectives.all_reduce(values)
            self.seconds_waiting += span.seconds
            with self.span("decode"):
                out += values.to(out.dtype) * alpha
            return
        with self.span("all-gather", sent) as span:
            message.stamp(self.step, self.flags)
            assert message.buffer.nbytes == message.nbytes, "what is handed over is what is reported"
            gathered = self.collectives.all_gather(message.buffer)
        self.seconds_waiting += span.seconds
        with self.span("decode"):
            for rank, buffer in enumerate(gathered):
                message.codec.add_to(out, self.checked(message, rank, buffer), alpha)

    def agree(self, flags: Tensor) -> None:
        """Replace ``flags`` (bool, on the CPU) by whether any rank has them set."""
        sent = flags.nbytes if self.size > 1 else 0
        with self.span("agree", sent) as span:
            self.transport.all_reduce_flags(flags)
        self.seconds_waiting += span.seconds
        self.bytes_sent += sent

    def span(self, name: str, nbytes: int = 0) -> Span:
        """Measures what runs inside it, as a part of this step."""
        return Span(name, self.recorder, self.step, nbytes)

    def noise(self, like: Tensor) -> Tensor:
        """See ``Communicator.noise``."""
        return uniform(self.seed, self.step, torch.tensor(self.rank), like)

    def checked(self, message: Message, peer: int, buffer: Tensor) -> Message:
        """``buffer``, received from ``peer`` in answer to ``message``, as a message; its header must be the same."""
        received = message.with_buffer(buffer)
        mine, theirs = message.header, received.header
        if (mine.step, mine.layout) != (theirs.step, theirs.layout):
            differs = "of another step" if mine.step != theirs.step else "of another layout"
            raise RuntimeError(
                f"rank {self.rank} in step {mine.step} received a message {differs} from rank {peer} in step "
                f"{theirs.step}: all ranks must run the same program"
            )
        self.flags_seen |= theirs.flags
        return received


class PendingNetworkMix:
    """See ``PendingMix``."""

    def __init__(self, comm: Network, exchange: Exchange, message: Message, graph: Topology) -> None:
        self._comm, self._exchange, self._message, self._graph = comm, exchange, message, graph

    def add_to(self, out: Tensor, alpha: float = 1.0) -> None:
        """See ``PendingMix.add_to``."""
        comm, message = self._comm, self._message
        with comm.span("exchange wait", message.nbytes * len(self._graph.neighbors(comm.rank))) as span:
            received = self._exchange.wait()
        comm.seconds_waiting += span.seconds
        with comm.span("decode"):
            for peer, weight in self._graph.rows[comm.rank]:
                one = message if peer == comm.rank else comm.checked(message, peer, received[peer])
                message.codec.add_to(out, one, alpha * weight)
        self._exchange.release()
