"""Wrapping and training a small network, on one rank or on many."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from mpidec import CHOCO, Algorithm, DistributedOptimizer, FlatBuffer, Network, Rows, Step, Topology, World
from support.problems import alone, loss_of, net
from support.table import LOCALS, Row

STEPS_PER_EPOCH = 4


def sgd(model: nn.Module, **options: float) -> torch.optim.SGD:
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3, **options)


def wrap(
    model: nn.Module, rule: Callable[[], Algorithm] = CHOCO, local=LOCALS["nesterov"], **options: Any
) -> DistributedOptimizer:
    """Around ``model`` on one rank alone."""
    return DistributedOptimizer(
        local(model.parameters()), model, rule(), alone(), **{"steps_per_epoch": STEPS_PER_EPOCH, **options}
    )


def wrap_row(
    world: World, model: nn.Module, row: Row, local: str = "", collectives: str = "auto", **other: Any
) -> DistributedOptimizer:
    """Around ``model`` on this rank of ``world``."""
    rule = row.rule(**other)
    network = network_of(world, rule, collectives)
    optimizer = LOCALS[local or row.locals[0]](model.parameters())
    return DistributedOptimizer(optimizer, model, rule, network, steps_per_epoch=STEPS_PER_EPOCH)


def graph_of(rule: Algorithm, size: int) -> Topology:
    return Topology.named("complete" if rule.central else "ring", size)


def network_of(world: World, rule: Algorithm, collectives: str = "auto") -> Network:
    graph = graph_of(rule, world.size)
    return Network(world.transport, graph, world.collectives(collectives) if rule.central else None)


def train(rank: int, model: nn.Module, optimizer: torch.optim.Optimizer, first: int, last: int) -> None:
    """The steps ``first`` to ``last`` of ``rank``."""
    for step in range(first, last + 1):
        optimizer.zero_grad()
        loss_of(model, rank, step).backward()
        optimizer.step()


def simulate(rule: Algorithm, make_local: Callable[..., torch.optim.Optimizer], graph: Topology, steps: int) -> Tensor:
    """The same training, in float64, of all ranks on the rows of one matrix: their parameters, shape ``(n, d)``."""
    model = net().double()
    flat, comm = FlatBuffer(model), Rows(graph)
    rule.compressor.bind(flat.sizes, comm.noise)
    parameter = nn.Parameter(flat.data.expand(graph.size, -1).clone())
    local, x = make_local([parameter]), parameter.data
    with torch.no_grad():
        rule.start(x, comm)
    for t in range(1, steps + 1):
        gradients = []
        for rank in range(graph.size):
            flat.data.copy_(x[rank])
            model.zero_grad()
            loss_of(model, rank, t).backward()
            flat.collect_grad()
            gradients.append(flat.grad.clone())
        parameter.grad = torch.stack(gradients)
        with torch.no_grad():
            rule.run(x, parameter.grad, comm, Step(t, t / STEPS_PER_EPOCH), local.step)
    return x
