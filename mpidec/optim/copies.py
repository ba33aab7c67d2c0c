"""What the two rules of Tang et al. 2018, arXiv 1803.06443, share: the state of public copies that begin as models."""

from __future__ import annotations

from torch import Tensor

from mpidec.communicator import Communicator
from mpidec.compress.base import Compressor
from mpidec.compress.quantize import QSGD
from mpidec.optim.base import Algorithm, accumulator, mixed_now
from mpidec.optim.checks import refuse_changing


class PublicCopies(Algorithm):
    """A rule on the update x - x_prev that keeps the public copies of all neighbours as one weighted sum.

    State: ``mixed`` = sum_j W[i, j] x_hat_j, and where ``keeps_own`` says so ``x_hat``, the own public copy, both of
    the shape and unit of x, in float32 at least; x_hat = x at the start. Refuses weights that change over time.

    ``compressor``: ``QSGD(8, contraction=False)`` where none is given.
    """

    uses_x_prev = True
    needs = "unbiased"
    x_hat: Tensor
    mixed: Tensor

    def __init__(self, compressor: Compressor | None = None) -> None:
        super().__init__(compressor or QSGD(8, contraction=False))

    @property
    def keeps_own(self) -> bool:
        """Whether the rule needs its own public copy apart from the sum."""
        return True

    def start(self, x: Tensor, comm: Communicator) -> None:
        refuse_changing(comm.topology, type(self).__name__.lower())
        self.register_buffer("mixed", mixed_now(x, comm))
        if self.keeps_own:
            self.register_buffer("x_hat", accumulator(x).add_(x))
