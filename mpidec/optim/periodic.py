"""Rules under which ranks take steps of their own and meet every few steps."""

from __future__ import annotations

from abc import abstractmethod

from torch import Tensor

from mpidec.communicator import Communicator
from mpidec.compress.base import Compressor
from mpidec.errors import UserError
from mpidec.optim.base import Algorithm, Step, accumulator


class Periodic(Algorithm):
    """Local steps, and in some steps a synchronisation, which moves the consensus model ``c``, x at the start::

        c = c - moved(c - x)               # a mean over the ranks, which each rule takes in its own way
        x = c

    All ranks move it alike: where they do not start from one model, what they differ by stays.

    Steps count from 1. A step synchronises where ``period`` divides it, and in every step of the first ``start_epoch``
    epochs (post-local SGD, Lin et al. 2020, arXiv 1808.07217), where the epoch of step t is t / steps per epoch.

    Raises ``UserError`` for a ``period`` below 1, and for a negative ``start_epoch``.
    """

    central = True
    c: Tensor

    def __init__(self, compressor: Compressor, period: int, start_epoch: float) -> None:
        super().__init__(compressor)
        if period < 1 or int(period) != period:
            raise UserError(f"period is the number of steps between synchronisations, 1 or more: got {period}")
        if not 0 <= start_epoch < float("inf"):
            raise UserError(f"start_epoch is the epoch at which local steps begin, 0 or later: got {start_epoch}")
        self.period, self.start_epoch = period, start_epoch

    @property
    def counts_epochs(self) -> bool:
        return super().counts_epochs or self.start_epoch > 0

    def start(self, x: Tensor, comm: Communicator) -> None:
        self.register_buffer("c", accumulator(x).add_(x))

    def combine(self, x: Tensor, x_prev: Tensor | None, comm: Communicator, step: Step) -> None:
        if step.index % self.period == 0 or step.epoch < self.start_epoch:
            self.c -= self.moved(self.c - x, comm)
            x.copy_(self.c)

    @abstractmethod
    def moved(self, delta: Tensor, comm: Communicator) -> Tensor:
        """By how much the consensus model moves, where the steps of this rank add up to ``delta`` = c - x."""
