"""The contract of an algorithm: three hooks over flat tensors, written against a communicator and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from mpidec.communicator import Communicator
from mpidec.compress.base import Compressor
from mpidec.compress.dense import Identity
from mpidec.compress.message import Message
from mpidec.errors import UserError


@dataclass(frozen=True)
class Step:
    """``index``: from 1; ``epoch``: index / steps per epoch, 0 where that is not known."""

    index: int
    epoch: float = 0.0


class Algorithm(nn.Module):
    """What ranks tell each other, around a local step that any torch optimizer takes.

    A Module for the sake of its buffers only: state dict, strict keys and loading in place come with it. ``x``,
    ``x_prev`` and ``g`` are flat, of shape ``(d,)`` on a rank and ``(n, d)`` in a simulation; every hook works in
    place.

    ``central``: the rule needs all ranks, through ``comm.sum``. ``synchronous``: a central rule that sums in every
    step, so that a parameter without a gradient on some ranks counts as zero there. ``uses_x_prev``: ``combine`` wants
    the parameters from before the local step. ``owns_direction``: momentum and weight decay are the rule's own, and
    the local step is plain SGD. ``needs``: what the compressor must be for the rule's analysis to hold; a rule that
    remembers the ``entries`` it did not send wants whole values if it is sparse, and an unbiased one if it is dense.
    ``state_depends_on``: settings without which the buffers mean something else.
    """

    central = False
    synchronous = False
    uses_x_prev = False
    owns_direction = False
    state_depends_on: tuple[str, ...] = ()
    needs: Literal["anything", "contraction", "unbiased", "entries"] = "anything"

    def __init__(self, compressor: Compressor) -> None:
        super().__init__()
        if not isinstance(compressor, Compressor):
            raise UserError(f"an algorithm takes a compressor such as mpidec.Sign(): got {compressor!r}")
        self.compressor = compressor

    @property
    def counts_epochs(self) -> bool:
        """Whether the rule changes with the epoch."""
        return self.compressor.counts_epochs

    @property
    def kind(self) -> str:
        """The class, with the settings that its state depends on."""
        settings = ", ".join(f"{name}={getattr(self, name)}" for name in self.state_depends_on)
        return type(self).__name__ + (f"({settings})" if settings else "")

    def unwise(self, local: torch.optim.Optimizer) -> str:
        """Why ``local`` is a poor choice around this rule, in one sentence; empty where it is not."""
        return ""

    def sent(self, message: Message, like: Tensor) -> Tensor:
        """What ``message`` says, as every receiver reads it, in the shape of ``like``."""
        decoded = accumulator(like)
        self.compressor.add_to(decoded, message)
        return decoded

    @property
    def described(self) -> str:
        """The class and its settings, in which all ranks must agree."""
        settings = {k: v for k, v in vars(self).items() if isinstance(v, (float, int, str)) and k != "training"}
        return f"{type(self).__name__}({', '.join(f'{name}={value}' for name, value in settings.items())})"

    def start(self, x: Tensor, comm: Communicator) -> None:
        """Once, before the first step: create the buffers."""

    def reduce(self, g: Tensor, x: Tensor, comm: Communicator, step: Step) -> None:
        """Before the local step: rules on gradients."""

    def combine(self, x: Tensor, x_prev: Tensor | None, comm: Communicator, step: Step) -> None:
        """After the local step: rules on parameters, or on the update ``x_prev - x``."""

    def run(self, x: Tensor, g: Tensor, comm: Communicator, step: Step, local_step: Callable[[], object]) -> None:
        """One step of training: the hooks in their order around ``local_step``, which moves ``x`` along ``g``."""
        comm.step = step.index
        self.compressor.at(step.epoch)
        self.reduce(g, x, comm, step)
        x_prev = x.clone() if self.uses_x_prev else None
        local_step()
        self.combine(x, x_prev, comm, step)


def accumulator(like: Tensor) -> Tensor:
    """Zeros in the shape of ``like`` to add up in: 16-bit models are summed, and remembered, in float32."""
    return torch.zeros_like(like, dtype=like.dtype if like.dtype.itemsize >= 4 else torch.float32)


def mean_of(message: Message, like: Tensor, comm: Communicator) -> Tensor:
    """The mean of what all ranks' messages say, in the shape of ``like``."""
    mean = accumulator(like)
    comm.sum(message, mean, 1 / comm.size)
    return mean


def mixed_now(x: Tensor, comm: Communicator) -> Tensor:
    """sum_j W[i, j] x_j, by one exchange of whole values: rows of W may not sum to 1, and starts may differ."""
    mixed = accumulator(x)
    comm.mix(Identity().encode(x), mixed)
    return mixed
