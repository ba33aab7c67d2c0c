"""DeepSqueeze: compressed parameters with error compensation."""

from __future__ import annotations

from torch import Tensor

from mpidec.communicator import Communicator
from mpidec.compress.base import Compressor
from mpidec.compress.sign import Sign
from mpidec.optim.base import Algorithm, Step, accumulator
from mpidec.optim.checks import refuse_gamma


class DeepSqueeze(Algorithm):
    """DeepSqueeze: compressed parameters with error compensation (Tang et al. 2019, arXiv 1907.07346, Algorithm 1).

    Update of rank i::

        x        = local_step(x)
        v        = x + residual
        residual = v - C(v)
        x       += gamma (sum_j W[i, j] C(v_j) - C(v))

    State: ``residual``, what is still to be sent, of the shape and unit of x, in float32 at least, zero at the start.
    Bytes a step: those of one message for each neighbour. The mean of x over the ranks moves as under the local steps
    alone, for doubly stochastic W and every compressor. Nothing is kept of the neighbours, so weights may change.

    Args:
        compressor: any contraction; ``Sign()`` where none is given.
        gamma: consensus step size in (0, 1]; the coarser the compressor, the smaller. 1 with ``Identity`` is D-PSGD
            adapt-then-combine. Raises ``UserError`` outside the range.

    >>> import torch; from mpidec import Identity, Rows, Step, Topology
    >>> x, comm = torch.tensor([[0.0], [3.0], [6.0], [3.0]]), Rows(Topology.named("ring", 4))
    >>> rule = DeepSqueeze(Identity(), gamma=1)
    >>> rule.start(x, comm)
    >>> rule.run(x, torch.zeros(4, 1), comm, Step(1), lambda: None)
    >>> x.flatten()
    tensor([2., 3., 4., 3.])
    """

    needs = "contraction"
    residual: Tensor

    def __init__(self, compressor: Compressor | None = None, gamma: float = 0.3) -> None:
        super().__init__(compressor or Sign())
        self.gamma = refuse_gamma(gamma)

    def start(self, x: Tensor, comm: Communicator) -> None:
        self.register_buffer("residual", accumulator(x))

    def combine(self, x: Tensor, x_prev: Tensor | None, comm: Communicator, step: Step) -> None:
        v = x + self.residual
        q = self.compressor.encode(v)
        own = self.sent(q, v)
        self.residual.copy_(v - own)
        mixed = accumulator(x)
        comm.mix(q, mixed)
        x += self.gamma * (mixed - own)
