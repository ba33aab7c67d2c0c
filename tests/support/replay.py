"""A recorded trajectory, walked again on rows or on one of several ranks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor, nn

from mpidec import Network, Rows, Step, World
from support.golden import TOLERANCE, Golden, recordings


def on_rows(golden: Golden) -> Iterator[tuple[int, Tensor]]:
    """All ranks at once: every step, and the parameters after it, shape ``(n, d)``."""
    rule, comm, x = golden.algorithm(), Rows(golden.topology), golden.start()
    rule.compressor.bind(golden.sizes, golden.noise)
    parameter = nn.Parameter(x)
    local = golden.local([parameter])
    rule.start(x, comm)
    for t in range(1, max(golden.checkpoints) + 1):
        parameter.grad = torch.stack([golden.gradient(rank, t, x[rank]) for rank in range(golden.size)])
        with torch.no_grad():
            rule.run(x, parameter.grad, comm, Step(t, t / golden.record["epoch_length"]), local.step)
        yield t, x


def on_ranks(world: World, golden: Golden, collectives: str) -> None:
    """This rank of ``world`` lands on the recording, and on the bits of its row where all sums run in rank order."""
    central = golden.algorithm().central
    comm = Network(world.transport, golden.topology, world.collectives(collectives) if central else None)
    rule, x = golden.algorithm(), golden.start()[world.rank].clone()
    rule.compressor.bind(golden.sizes, golden.noise)
    parameter = nn.Parameter(x)
    local, checkpoints = golden.local([parameter]), golden.checkpoints
    rule.start(x, comm)
    for t, rows in on_rows(golden):
        parameter.grad = golden.gradient(world.rank, t, x)
        with torch.no_grad():
            rule.run(x, parameter.grad, comm, Step(t, t / golden.record["epoch_length"]), local.step)
        if golden.bit_equal:
            assert torch.equal(x, rows[world.rank])
        if t in checkpoints:
            torch.testing.assert_close(x, checkpoints[t][world.rank], rtol=0, atol=TOLERANCE)


def one_each() -> list[Path]:
    """One recording of every algorithm and kind of graph, with momentum where there is one."""
    chosen: dict[tuple[str, bool], Path] = {}
    for case in recordings():
        path: Path = case.values[0]
        algorithm, graph = path.name.split("__")[:2]
        key = algorithm, graph.startswith("complete")
        if key not in chosen or "__m0.9n" in path.name:
            chosen[key] = path
    return list(chosen.values())
