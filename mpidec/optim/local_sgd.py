"""Local SGD: averages of the models, every few steps."""

from __future__ import annotations

from torch import Tensor

from mpidec.communicator import Communicator
from mpidec.compress.base import Compressor
from mpidec.compress.dense import Identity
from mpidec.optim import PERIOD
from mpidec.optim.base import mean_of
from mpidec.optim.checks import refuse_lossy
from mpidec.optim.periodic import Periodic


class LocalSGD(Periodic):
    """Local SGD: averages of the models, every few steps (Stich 2019, arXiv 1805.09767).

    Update of rank i::

        x = local_step(x)
        c = c - mean_j(c - x_j); x = c          # at a synchronisation, see Periodic

    State: ``c``, the consensus model, of the shape and unit of x, in float32 at least, x at the start. Bytes a
    synchronisation: 4 d into an all-reduce, or with a 16-bit compressor 2 d into an all-gather.

    Args:
        compressor: ``Identity``, with or without a 16-bit wire. Raises ``UserError`` for another one.
        period: steps from one synchronisation to the next, from 1.
        start_epoch: from which epoch on steps are local; before it every step synchronises.

    >>> import torch; from mpidec import Rows, Step, Topology
    >>> x, rule, comm = torch.zeros(4, 1), LocalSGD(period=2), Rows(Topology.named("complete", 4))
    >>> rule.start(x, comm)
    >>> for t in (1, 2):
    ...     rule.run(x, x, comm, Step(t), lambda: x.add_(torch.tensor([[1.0], [2.0], [3.0], [6.0]])))
    >>> x.flatten()
    tensor([6., 6., 6., 6.])
    """

    def __init__(self, compressor: Compressor | None = None, period: int = PERIOD, start_epoch: float = 0.0) -> None:
        super().__init__(refuse_lossy(compressor or Identity(), "local", "steps"), period, start_epoch)

    def moved(self, delta: Tensor, comm: Communicator) -> Tensor:
        return mean_of(self.compressor.encode(delta), delta, comm)
