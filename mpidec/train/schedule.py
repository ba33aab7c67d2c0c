"""The learning rate over a run, by torch's own schedulers, one step of theirs after each of ours."""

from __future__ import annotations

import torch
from torch.optim.lr_scheduler import (
    ConstantLR,
    CosineAnnealingLR,
    LinearLR,
    LRScheduler,
    MultiStepLR,
    OneCycleLR,
    SequentialLR,
)

from mpidec.topology import Topology
from mpidec.train.checks import milestones
from mpidec.train.config import Config


def factor(config: Config, graph: Topology) -> float:
    """What the learning rate is multiplied by: the ranks, or the neighbours of a rank and itself, on average.

    Linear scaling after Goyal et al. 2017, arXiv 1706.02677.
    """
    if config.scale_lr == "ranks":
        return float(graph.size)
    if config.scale_lr == "degree":
        first = graph.at(1)
        return 1 + sum(len(first.neighbors(rank)) for rank in range(graph.size)) / graph.size
    return 1.0


def scheduler(config: Config, optimizer: torch.optim.Optimizer, graph: Topology, steps_per_epoch: int) -> LRScheduler:
    """Set the rates of ``optimizer`` for the first step, and return what changes them: call its ``step`` after each.

    A warm-up comes first and the schedule runs over the whole length of the run, so that it falls where it would fall
    without one.
    """
    scale = factor(config, graph)
    for group in optimizer.param_groups:
        group["lr"] = float(group["lr"]) * scale
    total = config.epochs * steps_per_epoch
    warmup = round(config.lr_warmup * steps_per_epoch)
    start = 1 / scale if scale > 1 else 0.1
    if config.schedule == "onecycle":
        peak = [group["lr"] for group in optimizer.param_groups]
        return OneCycleLR(optimizer, max_lr=peak, total_steps=total, cycle_momentum=False)
    if not warmup:
        return _main(config, optimizer, total, 0)
    rising = LinearLR(optimizer, start_factor=start, total_iters=warmup)
    return SequentialLR(optimizer, [rising, _main(config, optimizer, total, warmup)], [warmup])


def _main(config: Config, optimizer: torch.optim.Optimizer, total: int, warmup: int) -> LRScheduler:
    if config.schedule == "cosine":
        return CosineAnnealingLR(optimizer, T_max=max(1, total - warmup))
    if config.schedule == "multistep":
        assert config.milestones is not None, "a config fills them in"
        assert config.lr_factor is not None, "a config fills it in"
        falls = [max(0, round(one * total) - warmup) for one in milestones(config.milestones)]
        return MultiStepLR(optimizer, falls, config.lr_factor)
    return ConstantLR(optimizer, factor=1.0, total_iters=0)
