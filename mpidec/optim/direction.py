"""Rules that compress the direction of the step, and so own what it is made of."""

from __future__ import annotations

from torch import Tensor

from mpidec.communicator import Communicator
from mpidec.compress.base import Compressor
from mpidec.errors import UserError
from mpidec.optim.base import Algorithm, accumulator


class Directed(Algorithm):
    """A rule on the direction D of the step, which it makes of the gradient as torch.optim.SGD does::

        d   = g + weight_decay x
        buf = momentum buf + d
        D   = buf, or d + momentum buf if nesterov

    What is left of D in x_prev - x, after float32 has rounded x, has the wrong sign in up to 13 % of the entries; so
    the rule works on the gradient, and the local optimizer is torch.optim.SGD without momentum and weight decay.

    State: ``momentum_buffer``, shape and unit of g, zero at the start, where there is momentum.

    Raises ``UserError`` for a ``momentum`` outside [0, 1), a negative ``weight_decay``, and ``nesterov`` without
    momentum.
    """

    owns_direction = True
    momentum_buffer: Tensor

    def __init__(self, compressor: Compressor, momentum: float, nesterov: bool, weight_decay: float) -> None:
        super().__init__(compressor)
        if not 0 <= momentum < 1:
            raise UserError(f"momentum is at least 0 and below 1: got {momentum}")
        if nesterov and not momentum:
            raise UserError("Nesterov's form needs a momentum above 0: got momentum = 0")
        if not 0 <= weight_decay < float("inf"):
            raise UserError(f"weight_decay is at least 0 and finite: got {weight_decay}")
        self.momentum, self.nesterov, self.weight_decay = momentum, nesterov, weight_decay

    def start(self, x: Tensor, comm: Communicator) -> None:
        if self.momentum:
            self.register_buffer("momentum_buffer", accumulator(x))

    def decayed(self, g: Tensor, x: Tensor) -> Tensor:
        """``d``, in float32 at least."""
        d = accumulator(x).add_(g)
        return d.add_(x, alpha=self.weight_decay) if self.weight_decay else d

    def accelerated(self, d: Tensor) -> Tensor:
        """``D``, for which the momentum buffer takes ``d`` up."""
        if not self.momentum:
            return d
        self.momentum_buffer.mul_(self.momentum).add_(d)
        return d.add(self.momentum_buffer, alpha=self.momentum) if self.nesterov else self.momentum_buffer.clone()
