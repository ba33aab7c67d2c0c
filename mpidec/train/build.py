"""What a configuration asks for, as objects: shards, model, rule and local step, wherever the ranks run."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import torch
from torch import nn

from mpidec.communicator import Network
from mpidec.compress import compressor
from mpidec.errors import UserError
from mpidec.optim import algorithm
from mpidec.optim.base import Algorithm
from mpidec.optim.distributed import DistributedOptimizer
from mpidec.train import models
from mpidec.train.config import Config
from mpidec.train.data.dataset import Dataset
from mpidec.train.data.partition import label_histogram
from mpidec.train.data.shards import Shards
from mpidec.train.data.source import Source
from mpidec.train.local import local_step
from mpidec.train.names import Partition


def shards(config: Config, dataset: Dataset, ranks: int) -> Shards:
    """The training samples as ``ranks`` share them."""
    batch, shard = config.batch_size * config.accumulate, -(-len(dataset.train) // ranks)
    if config.batch_size <= shard < batch:
        raise UserError(
            f"--accumulate {config.accumulate} makes batches of {batch}, which are larger than a rank's shard of "
            f"{shard} samples: lower it, or start fewer ranks"
        )
    return Shards.of(dataset.train, ranks, batch, config.seed, Partition.parse(config.partition))


def source(config: Config) -> Source:
    """Where the samples come from."""
    return Source(
        config.data,
        config.data_dir,
        config.download,
        config.image_size,
        config.sequence_length,
        config.workers,
    )


def label_counts(dataset: Dataset, shards: Shards) -> list[list[int]] | None:
    """How many samples of each class each rank has in the first epoch; ``None`` where samples have no one class."""
    labels = dataset.train.labels
    if labels is None or labels.ndim != 1:
        return None
    counts: list[list[int]] = label_histogram(labels.cpu().numpy(), shards.parts(1), dataset.classes).tolist()
    return counts


def dtype(config: Config) -> torch.dtype:
    """Of parameters, samples and messages."""
    named: torch.dtype = getattr(torch, config.dtype)
    return named


def model(config: Config, dataset: Dataset) -> nn.Module:
    """The network, with the parameters that the seed gives it, on the CPU."""
    torch.manual_seed(config.seed)
    made = models.build(config.model, dataset.sample, dataset.classes, dataset.tokens)
    if any(p.is_complex() for p in made.parameters()):
        raise UserError(f"--model {config.model} has complex parameters: only real ones can be averaged")
    return made.to(dtype(config))


def rule(config: Config) -> Algorithm:
    """The algorithm with its compressor."""
    own = config.algorithm_arguments
    if config.compressor is not None:
        own["compressor"] = compressor(config.compressor, **config.compressor_arguments)
    return algorithm(config.algorithm, **own, **(config.direction_options if config.owns_direction else {}))


def rule_with(config: Config) -> Callable[[float], Algorithm]:
    """What makes the algorithm anew for each gamma."""
    return lambda gamma: rule(dataclasses.replace(config, gamma=gamma))


def optimizer(config: Config, model: nn.Module, network: Network, steps_per_epoch: int) -> DistributedOptimizer:
    """The local step of ``model`` and the algorithm around it."""
    return DistributedOptimizer(
        local_step(config, model),
        model,
        rule(config),
        network,
        steps_per_epoch=steps_per_epoch,
        clip_norm=config.clip_norm,
    )
