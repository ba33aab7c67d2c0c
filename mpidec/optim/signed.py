"""What the local sign rules share: a mean of signs and a mean of magnitudes."""

from __future__ import annotations

from torch import Tensor

from mpidec.communicator import Communicator
from mpidec.compress.base import Compressor
from mpidec.compress.dense import Identity
from mpidec.compress.message import Message
from mpidec.compress.segments import mean_magnitudes, scale
from mpidec.optim.base import mean_of
from mpidec.optim.periodic import Periodic


class Signed(Periodic):
    """A rule whose ranks tell each other a direction s_j and a magnitude a_j, which may be averaged apart.

    ``direction`` encodes s_j, or a_j s_j where it is scaled.
    """

    def __init__(self, direction: Compressor, period: int, start_epoch: float, product: str) -> None:
        super().__init__(direction, period, start_epoch)
        self.product = product

    def averaged(self, q: Message, v: Tensor, comm: Communicator) -> Tensor:
        """The mean over the ranks of what ``q``, the message for ``v``, and the magnitudes of ``v`` say."""
        mean = mean_of(q, v, comm)
        if self.product == "separate":
            sizes = self.compressor.sizes(v.shape[-1])
            magnitudes = mean_magnitudes(v, sizes)
            scale(mean, mean_of(Identity().encode(magnitudes), magnitudes, comm), sizes)
        return mean
