"""Deep gradient compression: the largest entries of an accumulated direction."""

from __future__ import annotations

import math

from torch import Tensor

from mpidec.communicator import Communicator
from mpidec.compress.base import Compressor
from mpidec.compress.segments import clip
from mpidec.compress.sparse import TopK
from mpidec.optim.base import Step, accumulator, mean_of
from mpidec.optim.checks import refuse_clip, refuse_forgotten
from mpidec.optim.direction import Directed


class DGC(Directed):
    """Deep gradient compression: the largest entries of what waits (Lin et al. 2018, arXiv 1712.01887, Algorithm 4).

    Update of rank i, with D the direction of momentum SGD (see ``Directed``)::

        d  = g + weight_decay x, each tensor scaled to a norm of at most clip / sqrt(n)
        v += D(d)                                       # momentum correction: what waits is accelerated already
        q  = C(v)
        v  = 0, and buf = 0 with mask_momentum, on the entries that were sent
        x  = local_step(x, mean_j q_j)

    State: ``v``, what waits to be sent, of the shape and unit of g, in float32 at least, zero at the start. Bytes a
    step: those of one message, into an all-gather. A dense message sends everything: nothing waits or is masked.

    Args:
        compressor: sparse (``TopK(0.01)`` where none is given; ``warmup_epochs`` is the paper's warm-up), or dense and
            unbiased, as ``QSGD(bits, contraction=False)``. Raises ``UserError`` for ``Sign``.
        momentum, nesterov, weight_decay: in the place of the local optimizer's.
        clip: sqrt(n) times the norm that no tensor of d exceeds, or ``None``. Raises ``UserError`` for 0 and below.
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
        self.clip, self.mask_momentum = refuse_clip(clip), mask_momentum

    def start(self, x: Tensor, comm: Communicator) -> None:
        super().start(x, comm)
        self.register_buffer("v", accumulator(x))

    def reduce(self, g: Tensor, x: Tensor, comm: Communicator, step: Step) -> None:
        d = self.decayed(g, x)
        if self.clip is not None:
            clip(d, self.clip / math.sqrt(comm.size), self.compressor.sizes(d.shape[-1]))
        self.v += self.accelerated(d)
        q = self.compressor.encode(self.v)
        if (sent := q.support) is None:
            self.v.zero_()
        else:
            self.v.scatter_(-1, sent, 0)
            if self.momentum and self.mask_momentum:
                self.momentum_buffer.scatter_(-1, sent, 0)
        g.copy_(mean_of(q, g, comm))
