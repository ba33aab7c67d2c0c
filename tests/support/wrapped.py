"""The algorithms and local optimizers that the tests of one rank run over."""

from __future__ import annotations

import torch
from torch import nn

from mpidec import CHOCO, DPSGD, AllReduce, DistributedOptimizer
from support.problems import alone, loss_of

RULES = {
    "allreduce": AllReduce,
    "dpsgd": DPSGD,
    "combine-then-adapt": lambda: DPSGD(order="combine-then-adapt"),
    "choco": CHOCO,
}
LOCALS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "nesterov": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-3),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01),
}


def wrap(model: nn.Module, rule=CHOCO, local=LOCALS["nesterov"], **options) -> DistributedOptimizer:
    return DistributedOptimizer(local(model.parameters()), model, rule(), alone(), **options)


def train(model: nn.Module, optimizer: torch.optim.Optimizer, first: int, last: int) -> None:
    for step in range(first, last + 1):
        optimizer.zero_grad()
        loss_of(model, 0, step).backward()
        optimizer.step()
