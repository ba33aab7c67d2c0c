"""DCD-PSGD: compressed differences, on which the parameters themselves stand."""

from __future__ import annotations

from torch import Tensor

from mpidec.communicator import Communicator
from mpidec.compress.base import Compressor
from mpidec.compress.quantize import QSGD
from mpidec.optim.base import Algorithm, Step, accumulator, mixed_now
from mpidec.optim.checks import refuse_changing


class DCD(Algorithm):
    """DCD-PSGD: compressed differences, on which the parameters themselves stand.

    Tang et al. 2018, arXiv 1803.06443, Algorithm 1.

    Update of rank i::

        h      = mixed + (local_step(x) - x)
        q      = C(h - x_hat)
        x_hat += q
        mixed += sum_j W[i, j] q_j
        x      = x_hat

    State: ``x_hat``, the own public copy, x at the start, and ``mixed`` = sum_j W[i, j] x_hat_j, both of the shape and
    unit of x, in float32 at least. Bytes a step: those of one message for each neighbour; 4 d for each once, at the
    start. Under a biased compressor the exchange does not keep the mean of x. Refuses weights that change over time.

    Args:
        compressor: unbiased, for the analysis, and not too coarse: it diverges at few bits or entries.
            ``QSGD(8, contraction=False)`` where none is given.

    >>> import torch; from mpidec import Rows, Step, Topology
    >>> x, rule, comm = torch.tensor([[0.0], [3.0], [6.0], [3.0]]), DCD(), Rows(Topology.named("ring", 4))
    >>> rule.start(x, comm)
    >>> rule.run(x, torch.zeros(4, 1), comm, Step(1), lambda: None)
    >>> x.flatten()
    tensor([2., 3., 4., 3.])
    """

    uses_x_prev = True
    needs = "unbiased"
    x_hat: Tensor
    mixed: Tensor

    def __init__(self, compressor: Compressor | None = None) -> None:
        super().__init__(compressor or QSGD(8, contraction=False))

    def start(self, x: Tensor, comm: Communicator) -> None:
        refuse_changing(comm.topology, "dcd")
        self.register_buffer("x_hat", accumulator(x).add_(x))
        self.register_buffer("mixed", mixed_now(x, comm))

    def combine(self, x: Tensor, x_prev: Tensor | None, comm: Communicator, step: Step) -> None:
        assert x_prev is not None
        q = self.compressor.encode(self.mixed - self.x_hat + (x - x_prev))
        self.compressor.add_to(self.x_hat, q)
        comm.mix(q, self.mixed)
        x.copy_(self.x_hat)
