"""torch's SGD for parameters that lie in one flat vector: a few long operations in place of many short ones."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from typing import Any, NamedTuple

import torch
from torch import Tensor

from mpidec.flat import FlatBuffer
from mpidec.optim.light import Light

CHUNK = 2**18  # entries worked on in one go, which a CPU's cache keeps from one operation to the next


class Run(NamedTuple):
    """Consecutive ``segments`` of one param group, and their ``place`` in the flat vector."""

    segments: range
    place: slice


class SGD(Light, torch.optim.SGD):
    """torch.optim.SGD, with the same bits (of 32 and more) and state, in the time of the memory and not of many calls.

    The arguments are torch's. ``DistributedOptimizer`` tells it where the parameters lie; without that, where one of
    them has no gradient, and where ``foreach``, ``fused`` or ``differentiable`` asks for a form of torch's, it goes
    from one to the next as torch does.

    >>> p = torch.nn.Parameter(torch.tensor([1.0, 2.0]))
    >>> p.grad = torch.tensor([1.0, -1.0])
    >>> SGD([p], lr=0.5, momentum=0.9, nesterov=True).step()
    >>> p.data
    tensor([0.0500, 2.9500])
    """

    _flat: FlatBuffer | None = None
    _momentum: Tensor  # of the shape of the flat vector, and its views
    _momenta: list[Tensor]
    _runs: list[list[Run]]  # of each param group

    def lie_on(self, flat: FlatBuffer) -> None:
        """From here on the parameters are views of ``flat``, made with the param groups of this optimizer."""
        self._flat, self._momentum = flat, torch.zeros_like(flat.data)
        self._momenta = flat.views(self._momentum)
        self._runs = [[] for _ in self.param_groups]
        for group, members in groupby(range(len(flat.segments)), lambda i: flat.segments[i].group):
            first, *rest = members
            last = rest[-1] if rest else first
            place = slice(flat.segments[first].place.start, flat.segments[last].place.stop)
            self._runs[group].append(Run(range(first, last + 1), place))

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step; returns what ``closure``, evaluated first, returned."""
        if any(group["foreach"] or group["fused"] or group["differentiable"] for group in self.param_groups):
            return super().step(closure)
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for index, group in enumerate(self.param_groups):
            if self._flat is None:
                for p in group["params"]:
                    self._alone(p, group)
            else:
                for run in self._runs[index]:
                    self._along(run, self._flat, group)
        return loss

    def _along(self, run: Run, flat: FlatBuffer, group: dict[str, Any]) -> None:
        """All segments of a ``run`` at once, if all of them move, and all for the first time or none."""
        pairs = [(i, flat.parameters[i]) for i in run.segments]
        began = [self._adopted(p, i) for i, p in pairs if group["momentum"]]
        shown = all(p.grad is flat.grad_views[i] for i, p in pairs)
        if not shown or (any(began) and not all(began)):
            for i, p in pairs:
                self._alone(p, group, self._momenta[i])
            return
        x, g = flat.data[run.place], flat.grad[run.place]
        buffer = self._momentum[run.place] if group["momentum"] else None
        first = not any(began)
        chunk = CHUNK if x.device.type == "cpu" else len(x)
        for start in range(0, len(x), chunk):
            here = slice(start, start + chunk)
            _descend(x[here], g[here], None if buffer is None else buffer[here], first, group)
        if buffer is not None and first:
            for i, p in pairs:
                self.state[p]["momentum_buffer"] = self._momenta[i]

    def _adopted(self, p: Tensor, i: int) -> bool:
        """Whether segment ``i`` has a momentum; one that was loaded is brought into the flat vector."""
        buffer = self.state[p].get("momentum_buffer") if p in self.state else None
        if buffer is not None and buffer is not self._momenta[i]:
            self.state[p]["momentum_buffer"] = self._momenta[i].copy_(buffer)
        return buffer is not None

    def _alone(self, p: Tensor, group: dict[str, Any], blank: Tensor | None = None) -> None:
        """One parameter; its momentum, where it has none yet, goes into ``blank``."""
        if p.grad is None:
            return
        buffer, first = None, False
        if group["momentum"]:
            state = self.state[p]
            first = state.get("momentum_buffer") is None
            if first:
                state["momentum_buffer"] = torch.zeros_like(p) if blank is None else blank
            buffer = state["momentum_buffer"]
        _descend(p, p.grad, buffer, first, group)


def _descend(x: Tensor, g: Tensor, buffer: Tensor | None, first: bool, group: dict[str, Any]) -> None:
    """Move ``x`` along ``g``: operation by operation what torch does for one parameter, so that it rounds alike."""
    if group["maximize"]:
        g = -g
    if group["weight_decay"]:
        g = g.add(x, alpha=group["weight_decay"])
    if buffer is not None:
        if first:
            buffer.copy_(g)
        else:
            buffer.mul_(group["momentum"]).add_(g, alpha=1 - group["dampening"])
        g = g.add(buffer, alpha=group["momentum"]) if group["nesterov"] else buffer
    x.add_(g, alpha=-group["lr"])
