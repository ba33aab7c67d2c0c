"""ECD-PSGD: compressed extrapolations, whose noise is averaged away."""

from __future__ import annotations

from torch import Tensor

from mpidec.communicator import Communicator
from mpidec.optim.base import Step
from mpidec.optim.copies import PublicCopies


class ECD(PublicCopies):
    """ECD-PSGD: compressed extrapolations, whose noise is averaged away.

    Tang et al. 2018, arXiv 1803.06443, Algorithm 2.

    Update of rank i in step t = 1, 2, ...::

        new   = mixed + (local_step(x) - x)
        z     = (1 - t/2) x + (t/2) new
        x     = new
        mixed = (1 - 2/t) mixed + (2/t) sum_j W[i, j] C(z_j)

    which moves each public copy to (1 - 2/t) x_hat + (2/t) C(z). Under a sparse C only the chosen coordinates of the
    copies move, by increments that travel in place of the values::

        q      = (2/t) (z - x_hat), on the support of C(z), times s/k for an unbiased random-k
        x_hat += q
        mixed += sum_j W[i, j] q_j

    State: ``mixed`` = sum_j W[i, j] x_hat_j, and for a sparse C ``x_hat``, the own public copy, both of the shape and
    unit of x, in float32 at least; x_hat = x at the start. Bytes a step: those of one message for each neighbour; 4 d
    for each once, at the start. Under a biased compressor the exchange does not keep the mean of x. Refuses weights
    that change over time.

    Args:
        compressor: unbiased, for the analysis; more easily than DCD it diverges at few bits or entries.
            ``QSGD(8, contraction=False)`` where none is given.

    >>> import torch; from mpidec import Rows, Step, Topology
    >>> x, rule, comm = torch.tensor([[0.0], [3.0], [6.0], [3.0]]), ECD(), Rows(Topology.named("ring", 4))
    >>> rule.start(x, comm)
    >>> rule.run(x, torch.zeros(4, 1), comm, Step(1), lambda: None)
    >>> x.flatten()
    tensor([2., 3., 4., 3.])
    """

    @property
    def keeps_own(self) -> bool:
        return self.compressor.sparse

    def combine(self, x: Tensor, x_prev: Tensor | None, comm: Communicator, step: Step) -> None:
        assert x_prev is not None
        t, C = step.index, self.compressor
        new = self.mixed + (x - x_prev)
        z = (1 - t / 2) * x_prev + (t / 2) * new
        x.copy_(new)
        q = C.encode(z)
        if (chosen := q.support) is None:
            self.mixed *= 1 - 2 / t
            comm.mix(q, self.mixed, alpha=2 / t)
        else:
            q = q.with_values(((2 / t) * (z - self.x_hat)).gather(-1, chosen))
            C.add_to(self.x_hat, q)
            comm.mix(q, self.mixed)
