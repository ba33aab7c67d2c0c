"""``--gamma auto``: the consensus step size that fits the job's graph, compressor and layers."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from torch import nn

from mpidec.consensus.cache import cached_search
from mpidec.errors import UserError
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
    found: Config | str | None = None
    if transport.rank == 0:
        try:
            found = with_gamma(config, graph, [p.numel() for p in model.parameters() if p.requires_grad])
        except UserError as error:
            found = str(error)
    found = transport.broadcast_object(found)
    if isinstance(found, str):
        raise UserError(found)
    assert isinstance(found, Config), "rank 0 has found one, or said why not"
    return dataclasses.replace(config, gamma=found.gamma)
