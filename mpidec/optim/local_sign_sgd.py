"""Local signSGD: signs of the steps that ranks took on their own."""

from __future__ import annotations

from torch import Tensor

from mpidec.communicator import Communicator
from mpidec.compress.base import Compressor
from mpidec.compress.dense import Identity
from mpidec.compress.segments import mean_magnitudes, scale
from mpidec.compress.sign import Sign
from mpidec.names import canonical
from mpidec.optim import PERIOD, PRODUCTS
from mpidec.optim.base import mean_of
from mpidec.optim.periodic import Periodic


class Signed(Periodic):
    """What the two local sign rules share: directions and magnitudes may be averaged apart.

    ``direction`` encodes s_j, or a_j s_j where it is scaled.
    """

    def __init__(self, direction: Compressor, period: int, start_epoch: float, product: str) -> None:
        super().__init__(direction, period, start_epoch)
        self.product = product

    def moved(self, delta: Tensor, comm: Communicator) -> Tensor:
        mean = mean_of(self.compressor.encode(delta), delta, comm)
        if self.product == "separate":
            sizes = self.compressor.sizes(delta.shape[-1])
            magnitudes = mean_magnitudes(delta, sizes)
            scale(mean, mean_of(Identity().encode(magnitudes), magnitudes, comm), sizes)
        return mean


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
