"""What a configuration asks for, as objects: shards, model, rule and local step, wherever the ranks run."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from pkgutil import resolve_name

import torch
from torch import Tensor, nn

from mpidec.compress import compressor
from mpidec.optim import algorithm, entry
from mpidec.optim.base import Algorithm
from mpidec.train import models
from mpidec.train.config import Config
from mpidec.train.data import Dataset, Shards
from mpidec.train.names import Partition


def shards(config: Config, dataset: Dataset, ranks: int) -> Shards:
    """The training samples as ``ranks`` share them."""
    return Shards(dataset.train.labels, ranks, config.batch_size, config.seed, Partition.parse(config.partition))


def dtype(config: Config) -> torch.dtype:
    """Of parameters, samples and messages."""
    named: torch.dtype = getattr(torch, config.dtype)
    return named


def model(config: Config, dataset: Dataset) -> nn.Module:
    """The network, with the parameters that the seed gives it, on the CPU."""
    torch.manual_seed(config.seed)
    return models.build(config.model, dataset.sample, dataset.classes).to(dtype(config))


def rule(config: Config) -> Algorithm:
    """The algorithm with its compressor."""
    own = config.algorithm_arguments
    if config.compressor is not None:
        own["compressor"] = compressor(config.compressor, **config.compressor_arguments)
    return algorithm(config.algorithm, **own, **(config.direction_options if config.owns_direction else {}))


def rule_with(config: Config) -> Callable[[float], Algorithm]:
    """What makes the algorithm anew for each gamma."""
    return lambda gamma: rule(dataclasses.replace(config, gamma=gamma))


def local_step(config: Config, parameters: Iterable[Tensor]) -> torch.optim.Optimizer:
    """The optimizer that takes the local step of ``parameters``."""
    kind = resolve_name(entry(config.algorithm).local)
    made: torch.optim.Optimizer = kind(
        parameters, lr=config.lr, **({} if config.owns_direction else config.direction_options)
    )
    return made
