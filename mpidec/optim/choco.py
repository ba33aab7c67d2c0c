"""CHOCO-SGD: gossip on compressed differences to public copies."""

from __future__ import annotations

from torch import Tensor

from mpidec.communicator import Communicator
from mpidec.compress.base import Compressor
from mpidec.compress.sign import Sign
from mpidec.errors import UserError
from mpidec.optim.base import Algorithm, Step, accumulator, mixed_now
from mpidec.optim.checks import refuse_changing, refuse_gamma


class CHOCO(Algorithm):
    """CHOCO-SGD: gossip on compressed differences to public copies.

    Koloskova et al. 2019, arXiv 1902.00340, and 2020, arXiv 1907.09356, Algorithm 1.

    Update of rank i::

        x      = local_step(x)
        x     += gamma (mixed - x_hat)          # gossip with the old public copies, first
        q      = C(x - x_hat)
        x_hat += q
        mixed += sum_j W[i, j] q_j

    State: ``x_hat``, the own public copy, and ``mixed`` = sum_j W[i, j] x_hat_j, both of the shape and unit of x, in
    float32 at least, zero at the start. Bytes a step: those of one message for each neighbour. The mean of x over the
    ranks moves as under the local steps alone, for doubly stochastic W and every compressor. Refuses weights that
    change over time.

    Args:
        compressor: any contraction; ``Sign()`` where none is given. The analysis does not cover
            ``QSGD(bits, contraction=False)``, which diverges at few bits.
        gamma: consensus step size in (0, 1]; the coarser the compressor and the sparser the graph, the smaller. 1 with
            ``Identity`` is D-PSGD combine-then-adapt. Raises ``UserError`` outside the range.
        resync: steps after which ``mixed`` is formed anew of whole copies, 4 d bytes for each neighbour; 0: never. In
            float32 it drifts by about 5e-5 in 10,000 steps. Raises ``UserError`` for a negative number.

    >>> import torch; from mpidec import Rows, Step, Topology
    >>> x, rule, comm = torch.tensor([[0.0], [3.0], [6.0], [3.0]]), CHOCO(gamma=0.5), Rows(Topology.named("ring", 4))
    >>> rule.start(x, comm)
    >>> for t in range(1, 40):
    ...     rule.run(x, torch.zeros(4, 1), comm, Step(t), lambda: None)
    >>> [round(value, 3) for value in x.flatten().tolist()]
    [3.0, 3.0, 3.0, 3.0]
    """

    needs = "contraction"
    x_hat: Tensor
    mixed: Tensor

    def __init__(self, compressor: Compressor | None = None, gamma: float = 0.3, resync: int = 0) -> None:
        super().__init__(compressor or Sign())
        if resync < 0:
            raise UserError(f"resync is a number of steps, 0 for never: got {resync}")
        self.gamma, self.resync = refuse_gamma(gamma), resync

    def start(self, x: Tensor, comm: Communicator) -> None:
        refuse_changing(comm.topology, "choco")
        self.register_buffer("x_hat", accumulator(x))
        self.register_buffer("mixed", accumulator(x))

    def combine(self, x: Tensor, x_prev: Tensor | None, comm: Communicator, step: Step) -> None:
        x += self.gamma * (self.mixed - self.x_hat)
        q = self.compressor.encode(x - self.x_hat)
        self.compressor.add_to(self.x_hat, q)
        comm.mix(q, self.mixed)
        if self.resync and step.index % self.resync == 0:
            self.mixed.copy_(mixed_now(self.x_hat, comm))
