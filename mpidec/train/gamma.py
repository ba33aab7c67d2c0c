"""``--gamma auto``: the consensus step size that fits the job's graph, compressor and layers."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from torch import nn

from mpidec.consensus.cache import cached_search
from mpidec.optim.agreement import by_rank_0
from mpidec.topology import Topology
from mpidec.train import build
from mpidec.train.config import Config
from mpidec.transport.base import Transport


def with_gamma(config: Config, graph: Topology, sizes: Sequence[int]) -> Config:
    """``config`` with a number for ``auto``, for layers of ``sizes`` entries. ``UserError`` where none is stable."""
    if config.gamma != "auto":
        return config
    return dataclasses.replace(config, gamma=cached_search(build.rule_with(config), graph, sizes).gamma)


def agreed_gamma(config: Config, graph: Topology, model: nn.Module, transport: Transport) -> Config:
    """The same on every rank of a job, of which rank 0 searches; a collective call for ``auto``."""
    if config.gamma != "auto":
        return config
    sizes = [p.numel() for p in model.parameters() if p.requires_grad]
    gamma = by_rank_0(transport, lambda: with_gamma(config, graph, sizes).gamma)
    return dataclasses.replace(config, gamma=gamma)
