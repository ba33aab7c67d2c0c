"""Naive compressed gossip: what a message loses is lost, and consensus stalls."""

from __future__ import annotations

import torch
from torch import Tensor

from mpidec.communicator import Communicator
from mpidec.compress.base import Compressor
from mpidec.compress.dense import Identity
from mpidec.compress.sign import Sign
from mpidec.optim.base import Algorithm, Step, accumulator
from mpidec.optim.checks import refuse_gamma


class Naive(Algorithm):
    """Naive compressed gossip: what a message loses is lost, and consensus stalls.

    The baseline that the rules with a memory are measured against: (Q2-G) of Koloskova et al. 2019, arXiv 1902.00340,
    section 3.1, there from Carli et al. 2007, around local steps.

    Update of rank i::

        x  = local_step(x)
        x += gamma (sum_j W[i, j] C(x_j) - C(x_i))

    State: none. Bytes a step: those of one message for each neighbour. The mean of x over the ranks moves as under the
    local steps alone, for doubly stochastic W and every compressor; the distance to it does not vanish, since the error
    of C(x) shrinks with x and not with the distance.

    Args:
        compressor: any; ``Sign()`` where none is given. With ``Identity`` and gamma 1 this is D-PSGD
            adapt-then-combine.
        gamma: consensus step size in (0, 1]. Raises ``UserError`` outside the range.

    >>> import torch; from mpidec import Rows, Step, Topology
    >>> x, rule, comm = torch.tensor([[0.0], [3.0], [6.0], [3.0]]), Naive(), Rows(Topology.named("ring", 4))
    >>> rule.start(x, comm)
    >>> for t in range(1, 40):
    ...     rule.run(x, torch.zeros(4, 1), comm, Step(t), lambda: None)
    >>> [round(value, 1) for value in x.flatten().tolist()]
    [3.0, 3.0, 3.0, 3.0]
    """

    def __init__(self, compressor: Compressor | None = None, gamma: float = 0.3) -> None:
        super().__init__(compressor or Sign())
        self.gamma = refuse_gamma(gamma)

    def combine(self, x: Tensor, x_prev: Tensor | None, comm: Communicator, step: Step) -> None:
        q = self.compressor.encode(x)
        mixed = accumulator(x)
        comm.mix(q, mixed)
        x += self.gamma * (mixed - self.sent(q, x))

    def unwise(self, local: torch.optim.Optimizer) -> str:
        if isinstance(self.compressor, Identity):
            return ""
        return f"Naive forgets what {self.compressor!r} loses, and stalls: it is a baseline, choco remembers"
