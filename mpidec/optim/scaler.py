"""A GradScaler whose scale is the same on all ranks."""

from __future__ import annotations

import torch

from mpidec.transport.base import Transport


class EqualScaler(torch.amp.GradScaler):
    """torch's GradScaler for float16, with an ``update`` in which the ranks agree; a collective call.

    In a gossip run the ranks overflow apart, and scales of their own would drift apart with them. Here one rank's
    overflow is everybody's: the scale falls for all, and all count the steps to its next growth anew.

    ``transport``: that of ``mpidec.init()``. ``device``: where the model is. The other arguments are torch's.
    """

    def __init__(self, transport: Transport, device: torch.device | str = "cpu", enabled: bool = True) -> None:
        super().__init__(torch.device(device).type, enabled=enabled)
        self._transport = transport

    def update(self, new_scale: float | torch.Tensor | None = None) -> None:
        """See ``torch.amp.GradScaler.update``."""
        if not self.is_enabled() or new_scale is not None:
            super().update(new_scale)
            return
        before = self.get_scale()
        super().update()
        overflowed = torch.tensor([self.get_scale() < before])
        self._transport.all_reduce_flags(overflowed)
        if overflowed.item():
            fallen = before * self.get_backoff_factor()
            self.load_state_dict({**self.state_dict(), "scale": fallen, "_growth_tracker": 0})
