"""The algorithms that the tests of several ranks run over, and how they are wrapped and trained there."""

from __future__ import annotations

import torch
from torch import nn

from mpidec import CHOCO, DPSGD, AllReduce, DistributedOptimizer, Identity, Network, TopK, Topology, World
from support.problems import loss_of

RULES = {
    "allreduce": AllReduce,
    "dpsgd": DPSGD,
    "combine-then-adapt": lambda: DPSGD(order="combine-then-adapt"),
    "choco": CHOCO,
    "choco-top-k": lambda: CHOCO(TopK(0.1), gamma=0.1),
    "bf16": lambda: AllReduce(Identity(torch.bfloat16)),
}


def sgd(model: nn.Module, **options: float) -> torch.optim.SGD:
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3, **options)


def wrap(world: World, model: nn.Module, rule, collectives: str = "mpi") -> DistributedOptimizer:
    made = rule()
    graph = Topology.named("complete" if made.central else "ring", world.size)
    network = Network(world.transport, graph, world.collectives(collectives) if made.central else None)
    return DistributedOptimizer(sgd(model), model, made, network)


def train(world: World, model: nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> None:
    for step in range(1, steps + 1):
        optimizer.zero_grad()
        loss_of(model, world.rank, step).backward()
        optimizer.step()
