"""signSGD: one bit an entry each way, and a vote."""

from __future__ import annotations

import torch
from torch import Tensor

from mpidec.communicator import Communicator
from mpidec.compress.sign import Sign
from mpidec.names import canonical
from mpidec.optim import VOTES
from mpidec.optim.base import Step, accumulator
from mpidec.optim.direction import Directed


class SignSGD(Directed):
    """signSGD: every rank votes with the sign of its direction.

    Bernstein et al. 2018, arXiv 1802.04434 and 1810.05291, Algorithm 1.

    Update of rank i, with D the direction of momentum SGD (see ``Directed``)::

        u = sign(sum_j sign(D_j))          # vote "majority"; the votes are counted as integers, and a tie is 0
        u = mean_j sign(D_j)               # vote "mean"
        x = local_step(x, u)

    A vote is never 0: sign(0) = +1. State: ``momentum_buffer`` (see ``Directed``). Bytes a step: d / 8, into an
    all-gather. All entries move by the learning rate, so take a small one.

    Args:
        vote: one of the two names above. Raises ``UserError`` for another one.
        momentum, nesterov, weight_decay: in the place of the local optimizer's.

    >>> import torch; from mpidec import Rows, Step, Topology
    >>> x, g, rule = torch.zeros(4, 1), torch.tensor([[-1.0], [2.0], [3.0], [0.1]]), SignSGD()
    >>> rule.run(x, g, Rows(Topology.named("complete", 4)), Step(1), lambda: x.sub_(g))
    >>> x.flatten()
    tensor([-1., -1., -1., -1.])
    """

    central = synchronous = True

    def __init__(
        self, vote: str = VOTES[0], momentum: float = 0.0, nesterov: bool = False, weight_decay: float = 0.0
    ) -> None:
        super().__init__(Sign(scaled=False), momentum, nesterov, weight_decay)
        self.vote = canonical("vote", vote, VOTES)

    def reduce(self, g: Tensor, x: Tensor, comm: Communicator, step: Step) -> None:
        ballot = self.compressor.encode(self.accelerated(self.decayed(g, x)))
        votes = torch.zeros_like(g, dtype=torch.int32)
        comm.sum(ballot, votes)
        g.copy_(votes.sign() if self.vote == "majority" else accumulator(g).add_(votes).div_(comm.size))
