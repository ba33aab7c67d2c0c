"""Local signSGD: signs of the steps that ranks took on their own."""

from __future__ import annotations

import torch
from torch import Tensor

from mpidec.communicator import Communicator
from mpidec.compress.sign import Sign
from mpidec.names import canonical
from mpidec.optim import PERIOD, PRODUCTS
from mpidec.optim.signed import Signed
from mpidec.optim.signum import Signum


class LocalSignSGD(Signed):
    """Local signSGD: signs of the steps that ranks took on their own.

    Lin et al. 2020, arXiv 1808.07217, appendix.

    Update of rank i; the local step is that of ``Signum``::

        x   = x - lr sign(D)
        a_j = norm1(c - x_j) / s, s_j = sign(c - x_j)       # at a synchronisation, for each tensor of s entries
        c   = c - mean_j(a_j) mean_j(s_j); x = c            # product "separate", as the published code does
        c   = c - mean_j(a_j s_j); x = c                    # product "exact"

    State: ``c``, the consensus model, of the shape and unit of x, in float32 at least, x at the start. Bytes a
    synchronisation: d / 8 into an all-gather, and 4 for each tensor, into the same or into an all-reduce. With an even
    period and no momentum the local steps can cancel, and then the sign of round-off is sent: take an odd one.

    Args:
        period: steps from one synchronisation to the next, from 1.
        start_epoch: from which epoch on steps are local; before it every step synchronises.
        product: one of the two names above. Raises ``UserError`` for another one.

    >>> import torch; from mpidec import Rows, Step, Topology
    >>> x, rule, comm = torch.zeros(4, 1), LocalSignSGD(1), Rows(Topology.named("complete", 4))
    >>> rule.start(x, comm)
    >>> rule.run(x, x, comm, Step(1), lambda: x.sub_(torch.tensor([[1.0], [1.0], [1.0], [-1.0]])))
    >>> x.flatten()
    tensor([-0.5000, -0.5000, -0.5000, -0.5000])
    """

    def __init__(self, period: int = PERIOD, start_epoch: float = 0.0, product: str = PRODUCTS[0]) -> None:
        product = canonical("product", product, PRODUCTS)
        super().__init__(Sign(scaled=product == "exact"), period, start_epoch, product)

    def moved(self, delta: Tensor, comm: Communicator) -> Tensor:
        return self.averaged(self.compressor.encode(delta), delta, comm)

    def unwise(self, local: torch.optim.Optimizer) -> str:
        if not isinstance(local, Signum):
            return "the local step of LocalSignSGD is mpidec.Signum; around another one, LocalEFSignSGD remembers more"
        if self.period % 2 == 0 and not any(group["momentum"] for group in local.param_groups):
            return f"an even period ({self.period}) of sign steps without momentum can cancel: take an odd one"
        return ""
