"""D-PSGD: exact averaging with the neighbours."""

from __future__ import annotations

from torch import Tensor

from mpidec.communicator import Communicator
from mpidec.compress.base import Compressor
from mpidec.compress.dense import Identity
from mpidec.names import canonical
from mpidec.optim import ORDERS
from mpidec.optim.base import Algorithm, Step, accumulator
from mpidec.optim.checks import refuse_lossy


class DPSGD(Algorithm):
    """D-PSGD: exact averaging with the neighbours (Lian et al. 2017, arXiv 1705.09056, Algorithm 1).

    Update of rank i, ``adapt-then-combine``::

        x = local_step(x)
        x = sum_j W[i, j] x_j

    and as in the paper, ``combine-then-adapt``, where the exchange does not wait for the gradient::

        x = sum_j W[i, j] x_prev_j + (local_step(x_prev) - x_prev)

    State: none. Bytes a step: 4 d (2 d with a 16-bit compressor) for each neighbour. The mean of x over the ranks moves
    as under the local steps alone, for doubly stochastic W.

    Args:
        compressor: ``Identity``, with or without a 16-bit wire. Raises ``UserError`` for another one.
        order: one of the two names above. Raises ``UserError`` for another one.

    >>> import torch; from mpidec import Rows, Step, Topology
    >>> x, rule = torch.tensor([[0.0], [3.0], [6.0], [3.0]]), DPSGD()
    >>> rule.run(x, torch.zeros(4, 1), Rows(Topology.named("ring", 4)), Step(1), lambda: None)
    >>> x.flatten()
    tensor([2., 3., 4., 3.])
    """

    def __init__(self, compressor: Compressor | None = None, order: str = ORDERS[0]) -> None:
        super().__init__(refuse_lossy(compressor or Identity(), "dpsgd", "parameters"))
        self.order = canonical("order", order, ORDERS)
        self.uses_x_prev = self.order == "combine-then-adapt"

    def combine(self, x: Tensor, x_prev: Tensor | None, comm: Communicator, step: Step) -> None:
        mixed = accumulator(x)
        comm.mix(self.compressor.encode(x if x_prev is None else x_prev), mixed)
        x.copy_(mixed if x_prev is None else mixed + (x - x_prev))
