"""All-reduce SGD: the mean gradient of all ranks."""

from __future__ import annotations

from torch import Tensor

from mpidec.communicator import Communicator
from mpidec.compress.base import Compressor
from mpidec.compress.dense import Identity
from mpidec.optim.algorithm import Algorithm, Step, accumulator
from mpidec.optim.checks import refuse_lossy


class AllReduce(Algorithm):
    """All-reduce SGD: the mean gradient of all ranks, taken before weight decay and momentum.

    Update, as synchronous large-batch SGD (Goyal et al. 2017, arXiv 1706.02677, section 2.2)::

        g = mean_j g_j
        x = local_step(x, g)

    State: none. Bytes a step: 4 d, or 2 d with a 16-bit compressor, whose values are gathered and summed in float32.

    Args:
        compressor: ``Identity``, with or without a 16-bit wire. Raises ``UserError`` for another one.

    >>> import torch; from mpidec import Rows, Step, Topology
    >>> x, g, rule = torch.zeros(4, 1), torch.tensor([[1.0], [2.0], [3.0], [6.0]]), AllReduce()
    >>> rule.run(x, g, Rows(Topology.named("complete", 4)), Step(1), lambda: x.sub_(g))
    >>> x.flatten()
    tensor([-3., -3., -3., -3.])
    """

    central = True

    def __init__(self, compressor: Compressor | None = None) -> None:
        super().__init__(refuse_lossy(compressor or Identity(), "allreduce", "gradients"))

    def reduce(self, g: Tensor, x: Tensor, comm: Communicator, step: Step) -> None:
        total = accumulator(g)
        comm.sum(self.compressor.encode(g), total, 1 / comm.size)
        g.copy_(total)
