"""DCD-PSGD: compressed differences, on which the parameters themselves stand."""

from __future__ import annotations

from torch import Tensor

from mpidec.communicator import Communicator
from mpidec.optim.base import Step
from mpidec.optim.copies import PublicCopies


class DCD(PublicCopies):
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

    def combine(self, x: Tensor, x_prev: Tensor | None, comm: Communicator, step: Step) -> None:
        assert x_prev is not None
        q = self.compressor.encode(self.mixed - self.x_hat + (x - x_prev))
        self.compressor.add_to(self.x_hat, q)
        comm.mix(q, self.mixed)
        x.copy_(self.x_hat)
