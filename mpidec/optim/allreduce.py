"""All-reduce SGD: the mean gradient of all ranks."""

from __future__ import annotations

from torch import Tensor

from mpidec.communicator import Communicator
from mpidec.compress.base import Compressor
from mpidec.compress.dense import Identity
from mpidec.optim.base import Algorithm, Step, mean_of
from mpidec.optim.checks import refuse_lossy


class AllReduce(Algorithm):
    """All-reduce SGD: the mean gradient of all ranks, taken before weight decay and momentum.

    Update, as synchronous large-batch SGD (Goyal et al. 2017, arXiv 1706.02677, section 2.2)::

        g = mean_j g_j
        x = local_step(x, g)

    State: none. Bytes a step: 4 d into an all-reduce. With a 16-bit compressor 2 d into an all-gather, so that the sum
    is taken in float32: each rank then receives 2 d from every other, which pays for few ranks only. One byte a
    parameter tensor more tells which of them have a gradient anywhere.

    Args:
        compressor: ``Identity``, with or without a 16-bit wire. Raises ``UserError`` for another one.

    >>> import torch; from mpidec import Rows, Step, Topology
    >>> x, g, rule = torch.zeros(4, 1), torch.tensor([[1.0], [2.0], [3.0], [6.0]]), AllReduce()
    >>> rule.run(x, g, Rows(Topology.named("complete", 4)), Step(1), lambda: x.sub_(g))
    >>> x.flatten()
    tensor([-3., -3., -3., -3.])
    """

    central = synchronous = True

    def __init__(self, compressor: Compressor | None = None) -> None:
        super().__init__(refuse_lossy(compressor or Identity(), "allreduce", "gradients"))

    def reduce(self, g: Tensor, x: Tensor, comm: Communicator, step: Step) -> None:
        g.copy_(mean_of(self.compressor.encode(g), g, comm))
