"""Deep gradient compression: the largest entries of an accumulated direction."""

from __future__ import annotations

import math

from torch import Tensor

from mpidec.communicator import Communicator
from mpidec.compress.base import Compressor
from mpidec.compress.segments import norms, scale
from mpidec.compress.sparse import TopK
from mpidec.errors import UserError
from mpidec.optim.base import Step, accumulator
from mpidec.optim.checks import refuse_forgotten
from mpidec.optim.direction import Directed


class DGC(Directed):
    """Deep gradient compression: the largest entries of an accumulated direction.

    Lin et al. 2018, arXiv 1712.01887, Algorithm 4.

    Update of rank i, with D the direction of momentum SGD (see ``Directed``)::

        d  = g + weight_decay x, each tensor scaled to a norm of at most clip / sqrt(n)
        v += D(d)                                       # momentum correction: what waits is accelerated already
        q  = C(v)
        v  = 0, and buf = 0 with mask_momentum, on the entries that were sent
        x  = local_step(x, mean_j q_j)

    State: ``v``, what waits to be sent, and ``momentum_buffer``, both of the shape and unit of g, in float32 at least,
    zero at the start. Bytes a step: those of one message, into an all-gather. A dense compressor sends everything, so
    nothing waits, and no momentum is masked.

    Args:
        compressor: sparse (``TopK(0.01)`` where none is given; its ``warmup_epochs`` are the paper's warm-up), or
            unbiased (``QSGD(bits, contraction=False)``), or ``Identity``. Raises ``UserError`` for ``Sign``.
        momentum, nesterov, weight_decay: in the place of the local optimizer's.
        clip: largest norm of a tensor of the mean gradient, above 0, or ``None``. Raises ``UserError`` otherwise.
        mask_momentum: the paper's momentum factor masking; the published code of arXiv 1907.09356 has it off.

    >>> import torch; from mpidec import Rows, Step, Topology
    >>> x, g, rule, comm = torch.zeros(4, 2), torch.tensor([[1.0, 3.0]] * 4), DGC(), Rows(Topology.named("complete", 4))
    >>> rule.start(x, comm)
    >>> rule.run(x, g, comm, Step(1), lambda: x.sub_(g))
    >>> x[0], rule.v[0]
    (tensor([ 0., -3.]), tensor([1., 0.]))
    """

    central = synchronous = True
    needs = "entries"
    v: Tensor

    def __init__(
        self,
        compressor: Compressor | None = None,
        momentum: float = 0.0,
        nesterov: bool = False,
        weight_decay: float = 0.0,
        clip: float | None = None,
        mask_momentum: bool = True,
    ) -> None:
        super().__init__(refuse_forgotten(compressor or TopK(), "dgc"), momentum, nesterov, weight_decay)
        if clip is not None and not clip > 0:
            raise UserError(f"clip, the largest norm of a gradient tensor, is above 0: got {clip}")
        self.clip, self.mask_momentum = clip, mask_momentum

    def start(self, x: Tensor, comm: Communicator) -> None:
        super().start(x, comm)
        self.register_buffer("v", accumulator(x))

    def reduce(self, g: Tensor, x: Tensor, comm: Communicator, step: Step) -> None:
        d = self.decayed(g, x)
        if self.clip is not None:
            sizes = self.compressor.sizes(d.shape[-1])
            lengths = norms(d, sizes)
            scale(d, (self.clip / math.sqrt(comm.size) / lengths).clamp(max=1), sizes)
        self.v += self.accelerated(d)
        q = self.compressor.encode(self.v)
        if q.support is None:
            self.v.zero_()
        else:
            self.v.scatter_(-1, q.support, 0)
            if self.momentum and self.mask_momentum:
                self.momentum_buffer.scatter_(-1, q.support, 0)
        mean = accumulator(g)
        comm.sum(q, mean, 1 / comm.size)
        g.copy_(mean)
