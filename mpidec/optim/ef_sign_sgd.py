"""EF-signSGD: compressed steps whose error is remembered."""

from __future__ import annotations

from torch import Tensor

from mpidec.communicator import Communicator
from mpidec.compress.base import Compressor
from mpidec.compress.sign import Sign
from mpidec.errors import UserError
from mpidec.names import canonical
from mpidec.optim import RESIDUALS
from mpidec.optim.base import Step, accumulator
from mpidec.optim.direction import Directed


class EFSignSGD(Directed):
    """EF-signSGD: compressed steps whose error is remembered (Karimireddy et al. 2019, arXiv 1901.09847, Algorithm 1).

    Update of rank i, ``residual="parameters"`` as in the paper, around any local optimizer::

        p = (x - local_step(x)) + e
        e = p - C(p)
        x = x - mean_j C(p_j)

    and as in the published code of arXiv 1907.09356, ``residual="direction"``, with D the direction of momentum SGD
    (see ``Directed``). The two are equal while the learning rate is constant; the second keeps the rounding of x out of
    p::

        p = D + e
        e = p - C(p)
        x = local_step(x, mean_j C(p_j))

    State: ``e``, what is still to be sent, of the shape of x, in float32 at least, zero at the start, in the unit that
    ``residual`` names; ``momentum_buffer`` in the second form. Bytes a step: those of one message, into an all-gather.

    Args:
        compressor: any contraction; ``Sign()`` where none is given.
        residual: one of the two names above. Raises ``UserError`` for another one.
        momentum, nesterov, weight_decay: in the second form, in the place of the local optimizer's. Raises
            ``UserError`` in the first.

    >>> import torch; from mpidec import Rows, Step, Topology
    >>> x, rule, comm = torch.zeros(4, 2), EFSignSGD(), Rows(Topology.named("complete", 4))
    >>> rule.start(x, comm)
    >>> rule.run(x, x, comm, Step(1), lambda: x.sub_(torch.tensor([1.0, 3.0])))
    >>> x[0], rule.e[0]
    (tensor([-2., -2.]), tensor([-1.,  1.]))
    """

    central = synchronous = True
    needs = "contraction"
    e: Tensor

    def __init__(
        self,
        compressor: Compressor | None = None,
        residual: str = RESIDUALS[0],
        momentum: float = 0.0,
        nesterov: bool = False,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(compressor or Sign(), momentum, nesterov, weight_decay)
        self.residual = canonical("residual", residual, RESIDUALS)
        self.owns_direction = self.residual == "direction"
        self.uses_x_prev = not self.owns_direction
        if (momentum or weight_decay) and not self.owns_direction:
            raise UserError(
                "with residual='parameters' momentum and weight decay are the local optimizer's: give them to it, "
                "or take residual='direction'"
            )

    def start(self, x: Tensor, comm: Communicator) -> None:
        super().start(x, comm)
        self.register_buffer("e", accumulator(x))

    def reduce(self, g: Tensor, x: Tensor, comm: Communicator, step: Step) -> None:
        if self.owns_direction:
            g.copy_(self._mean_sent(self.accelerated(self.decayed(g, x)), comm))

    def combine(self, x: Tensor, x_prev: Tensor | None, comm: Communicator, step: Step) -> None:
        if x_prev is not None:
            x.copy_(x_prev - self._mean_sent(x_prev - x, comm))

    def _mean_sent(self, step: Tensor, comm: Communicator) -> Tensor:
        p = step + self.e
        q = self.compressor.encode(p)
        self.e.copy_(p - self.sent(q, p))
        mean = accumulator(p)
        comm.sum(q, mean, 1 / comm.size)
        return mean
