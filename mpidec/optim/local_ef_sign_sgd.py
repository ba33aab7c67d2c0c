"""Local EF-signSGD: signs of local steps, whose error is remembered."""

from __future__ import annotations

from torch import Tensor

from mpidec.communicator import Communicator
from mpidec.compress.base import Compressor
from mpidec.compress.int8 import Int8
from mpidec.compress.segments import mean_magnitudes, scale
from mpidec.compress.sign import Sign
from mpidec.names import canonical
from mpidec.optim import DIRECTIONS, PERIOD, PRODUCTS
from mpidec.optim.base import accumulator
from mpidec.optim.signed import Signed


class LocalEFSignSGD(Signed):
    """Local EF-signSGD: signs of local steps, whose error is remembered (Lin et al. 2020, arXiv 1808.07217, appendix).

    Update of rank i::

        x = local_step(x)
        v = c - x + e                                    # at a synchronisation, see Periodic
        a = norm1(v) / s, s = direction(v)               # for each tensor of s entries
        e = v - a sign(v)
        c = c - mean_j(a_j) mean_j(s_j); x = c           # product "separate", as the published code does
        c = c - mean_j(a_j s_j); x = c                   # product "exact", where e = v - a s

    The direction "signum" is sign(v), "int8" the 8-bit value of ``mpidec.compress.int8.Int8``.

    State: ``c``, the consensus model, x at the start, and ``e``, what is still to be sent, zero at the start, both of
    the shape and unit of x, in float32 at least. Bytes a synchronisation: d / 8 or d into an all-gather, and 4 for each
    tensor, into the same or into an all-reduce.

    Args:
        period: steps from one synchronisation to the next, from 1.
        start_epoch: from which epoch on steps are local; before it every step synchronises.
        direction, product: names as above. Raises ``UserError`` for others.

    >>> import torch; from mpidec import Rows, Step, Topology
    >>> x, rule, comm = torch.zeros(4, 2), LocalEFSignSGD(period=1), Rows(Topology.named("complete", 4))
    >>> rule.start(x, comm)
    >>> rule.run(x, x, comm, Step(1), lambda: x.sub_(torch.tensor([1.0, 3.0])))
    >>> x[0], rule.e[0]
    (tensor([-2., -2.]), tensor([-1.,  1.]))
    """

    e: Tensor

    def __init__(
        self,
        period: int = PERIOD,
        start_epoch: float = 0.0,
        direction: str = DIRECTIONS[0],
        product: str = PRODUCTS[0],
    ) -> None:
        self.direction = canonical("direction", direction, DIRECTIONS)
        product = canonical("product", product, PRODUCTS)
        codec: Compressor = (Sign if self.direction == "signum" else Int8)(scaled=product == "exact")
        super().__init__(codec, period, start_epoch, product)

    def start(self, x: Tensor, comm: Communicator) -> None:
        super().start(x, comm)
        self.register_buffer("e", accumulator(x))

    def moved(self, delta: Tensor, comm: Communicator) -> Tensor:
        v = delta + self.e
        q = self.compressor.encode(v)
        if self.product == "exact":
            own = self.sent(q, v)
        else:
            sizes = self.compressor.sizes(v.shape[-1])
            own = scale(accumulator(v).add_(v >= 0).mul_(2).sub_(1), mean_magnitudes(v, sizes), sizes)
        self.e.copy_(v - own)
        return self.averaged(q, v, comm)
