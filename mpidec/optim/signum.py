"""The local step of local signSGD, for any torch model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.optim.optimizer import ParamsT

from mpidec.errors import UserError
from mpidec.optim.light import Light


class Signum(Light):
    """x = x - lr sign(D), with D the direction of torch.optim.SGD (Bernstein et al. 2018, arXiv 1802.04434).

    sign(0) = 0, so what has no gradient stays. Every entry moves by ``lr``, so take a small one. The arguments are
    those of torch.optim.SGD. Raises ``UserError`` for values out of range.

    >>> p = torch.nn.Parameter(torch.tensor([1.0, 1.0, 1.0]))
    >>> p.grad = torch.tensor([5.0, 0.0, -0.1])
    >>> Signum([p], lr=0.5).step()
    >>> p.data
    tensor([0.5000, 1.0000, 1.5000])
    """

    def __init__(
        self, params: ParamsT, lr: float, momentum: float = 0.0, nesterov: bool = False, weight_decay: float = 0.0
    ) -> None:
        if not lr >= 0 or not 0 <= momentum < 1 or not weight_decay >= 0:
            raise UserError(
                "Signum takes an lr and a weight_decay of at least 0 and a momentum in [0, 1): got "
                f"lr={lr}, momentum={momentum}, weight_decay={weight_decay}"
            )
        if nesterov and not momentum:
            raise UserError("Nesterov's form needs a momentum above 0: got momentum = 0")
        super().__init__(params, {"lr": lr, "momentum": momentum, "nesterov": nesterov, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step; returns what ``closure``, evaluated first, returned."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                direction = p.grad.add(p, alpha=group["weight_decay"])
                if group["momentum"]:
                    state = self.state[p]
                    if not state:
                        state["momentum_buffer"] = torch.zeros_like(p)
                    buffer = state["momentum_buffer"]
                    buffer.mul_(group["momentum"]).add_(direction)
                    direction = direction.add(buffer, alpha=group["momentum"]) if group["nesterov"] else buffer
                p.sub_(direction.sign(), alpha=group["lr"])
        return loss
