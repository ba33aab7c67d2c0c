"""A problem whose solution is known, on the rows of one matrix."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from mpidec import Algorithm, Rows, Step, Topology

SIZES = [24, 5, 1]
D = sum(SIZES)
Seen = Callable[[int, Tensor, Tensor, Tensor], None]


def targets(size: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """Where the loss 0.5 |x - target|^2 of each rank is smallest, shape ``(size, D)``; the mean solves the whole."""
    generator = torch.Generator().manual_seed(size)
    common = torch.randn(1, D, generator=generator, dtype=torch.float64)
    return (common + 0.3 * torch.randn(size, D, generator=generator, dtype=torch.float64)).to(dtype)


def descend(
    rule: Algorithm,
    local: Callable[[list[nn.Parameter]], torch.optim.Optimizer],
    graph: Topology,
    steps: int,
    seen: Seen | None = None,
    dtype: torch.dtype = torch.float64,
    start: Tensor | None = None,
) -> Tensor:
    """``x`` of all ranks after ``steps``; ``seen(t, before, stepped, after)`` looks at each of them."""
    comm, goal = Rows(graph, seed=1), targets(graph.size, dtype)
    rule.compressor.bind(SIZES, comm.noise)
    x = torch.zeros(graph.size, D, dtype=dtype) if start is None else start.clone()
    parameter = nn.Parameter(x)
    optimizer = local([parameter])
    with torch.no_grad():
        rule.start(x, comm)
        for t in range(1, steps + 1):
            before, stepped = x.clone(), []
            parameter.grad = x - goal

            def step() -> None:
                optimizer.step()
                stepped.append(x.clone())  # noqa: B023

            rule.run(x, parameter.grad, comm, Step(t, t / 10), step)
            if seen:
                seen(t, before, stepped[0], x)
    return x
