"""EF-signSGD: compressed steps whose error is remembered."""

from __future__ import annotations

from torch import Tensor

from mpidec.communicator import Communicator
from mpidec.compress.base import Compressor
from mpidec.compress.sign import Sign
from mpidec.errors import UserError
from mpidec.names import canonical
from mpidec.optim import RESIDUALS
from mpidec.optim.base import Step, accumulator, mean_of
from mpidec.optim.direction import Directed


class EFSignSGD(Directed):
    """EF-signSGD: compressed steps whose error is remembered (Karimireddy et al. 2019, arXiv 1901.09847, Algorithm 1).

    Update of rank i, with ``residual="parameters"`` as in the paper, around any local optimizer::

        p = (x - local_step(x)) + e; e = p - C(p)
        x = x - mean_j C(p_j)

    and with ``residual="direction"`` as in the published code of arXiv 1907.09356, with D as in ``Directed``. The two
    are equal while the learning rate is constant; the second keeps the rounding of x out of p::

        p = D + e; e = p - C(p)
        x = local_step(x, mean_j C(p_j))

    State: ``e``, what waits, of the shape of x, in float32 at least. Bytes a step: one message, into an all-gather.

    Args:
        compressor: any contraction; ``Sign()`` where none is given.
        residual: one of the two names above; momentum, nesterov, weight_decay: of the second. ``UserError`` otherwise.

    >>> import torch; from mpidec import Rows, Step, Topology
    >>> x, rule, comm = torch.zeros(4, 2), EFSignSGD(), Rows(Topology.named("complete", 4))
    >>> rule.start(x, comm)
    >>> rule.run(x, x, comm, Step(1), lambda: x.sub_(torch.tensor([1.0, 3.0])))
    >>> x[0], rule.e[0]
    (tensor([-2., -2.]), tensor([-1.,  1.]))
    """

    central = synchronous = True
    needs = "contraction"
    state_depends_on = ("residual",)
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
        self.owns_direction, self.uses_x_prev = self.residual == "direction", self.residual == "parameters"
        if (momentum or weight_decay) and not self.owns_direction:
            raise UserError("give momentum and weight_decay to the local optimizer, or take residual='direction'")

    def start(self, x: Tensor, comm: Communicator) -> None:
        super().start(x, comm)
        self.register_buffer("e", accumulator(x))

    def reduce(self, g: Tensor, x: Tensor, comm: Communicator, step: Step) -> None:
        if self.owns_direction:
            g.copy_(self._exchange(self.accelerated(self.decayed(g, x)), comm))

    def combine(self, x: Tensor, x_prev: Tensor | None, comm: Communicator, step: Step) -> None:
        if x_prev is not None:
            x.copy_(x_prev - self._exchange(x_prev - x, comm))

    def _exchange(self, update: Tensor, comm: Communicator) -> Tensor:
        p = update + self.e
        q = self.compressor.encode(p)
        self.e.copy_(p - self.sent(q, p))
        return mean_of(q, p, comm)
