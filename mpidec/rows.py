"""All ranks of a job as the rows of one matrix: the two verbs of a communicator without any transport."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from mpidec.communicator import Communicator, sum_bytes
from mpidec.compress.message import Message
from mpidec.errors import UserError
from mpidec.noise import uniform
from mpidec.topology import Topology


class Summand(NamedTuple):
    """The ranks that have one more message to add (``None``: all of them), whose it is, and with which weight."""

    listening: Tensor | None
    peers: Tensor
    weights: Tensor


class Rows(Communicator):
    """All ranks in one process: row ``i`` of every tensor, shape ``(n, d)``, belongs to rank ``i``.

    Time and memory grow with the edges of the graph, so with n where that is sparse.
    """

    def __init__(self, topology: Topology, seed: int = 0) -> None:
        super().__init__(topology, seed)
        self._plans: dict[int, Plan] = {}

    def mix_start(self, message: Message) -> PendingRowsMix:
        """See ``Communicator.mix_start``."""
        self._refuse_misfit(message)
        message.stamp(self.step, self.flags)
        self.flags_seen |= self.flags
        phase = (self.step - 1) % self.topology.period
        if phase not in self._plans:
            self._plans[phase] = Plan(self.topology.at(self.step), message.buffer.device)
        plan = self._plans[phase]
        self.bytes_sent += message.nbytes * plan.messages
        return PendingRowsMix(message, plan.summands)

    def sum(self, message: Message, out: Tensor, alpha: float = 1.0) -> None:
        """See ``Communicator.sum``."""
        self._refuse_misfit(message)
        self.bytes_sent += sum_bytes(message) * self.size if self.size > 1 else 0
        # Rows that are alike stay alike: what is decoded is added to one of them, not to all.
        alike = bool((out == out[:1]).all())
        total = out[:1] if alike else out
        for rank in range(self.size):
            decoded = torch.zeros_like(out[:1])
            message.codec.add_to(decoded, message.with_buffer(message.buffer[rank : rank + 1]), alpha)
            total += decoded
        if alike:
            out[1:] = total

    def noise(self, like: Tensor) -> Tensor:
        """See ``Communicator.noise``."""
        return uniform(self.seed, self.step, torch.arange(self.size).unsqueeze(-1), like)

    def _refuse_misfit(self, message: Message) -> None:
        shape = tuple(message.buffer.shape[:-1])
        if shape != (self.size,):
            raise UserError(
                f"rows need one row for each of {self.size} ranks: got a message with the leading shape {shape}"
            )


class Plan:
    """A static graph in the order in which its messages are added up: every row's first summand, then the second, ..

    ``messages``: how many travel, own ones left out.
    """

    def __init__(self, graph: Topology, device: torch.device) -> None:
        self.messages = sum(len(graph.neighbors(rank)) for rank in range(graph.size))
        self.summands: list[Summand] = []
        listening = list(range(graph.size))
        for place in range(max(map(len, graph.rows))):
            listening = [rank for rank in listening if len(graph.rows[rank]) > place]
            peers, weights = zip(*(graph.rows[rank][place] for rank in listening), strict=True)
            everyone = len(listening) == graph.size
            self.summands.append(
                Summand(
                    None if everyone else torch.tensor(listening, device=device),
                    torch.tensor(peers, device=device),
                    torch.tensor(weights, dtype=torch.float64, device=device),
                )
            )


class PendingRowsMix:
    """See ``PendingMix``."""

    def __init__(self, message: Message, summands: list[Summand]) -> None:
        self._message, self._summands = message, summands

    def add_to(self, out: Tensor, alpha: float = 1.0) -> None:
        """See ``PendingMix.add_to``: the first summand of every row at once, then the second, and so on."""
        message = self._message
        _ = message.support  # once for all that listen to the same rank
        for listening, peers, weights in self._summands:
            part = out if listening is None else out[listening]
            message.codec.add_to(part, message.rows(peers), alpha * weights)
            if listening is not None:
                out[listening] = part
