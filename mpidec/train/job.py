"""The job of one rank, from options to results."""

from __future__ import annotations

from pkgutil import resolve_name

import torch
from torch import nn

from mpidec.communicator import Network
from mpidec.compress import compressor
from mpidec.optim import algorithm, entry
from mpidec.optim.agreement import refuse_differences
from mpidec.optim.distributed import DistributedOptimizer
from mpidec.topology import Topology
from mpidec.train import data, models
from mpidec.train.config import Config
from mpidec.train.evaluate import evaluate, parameters_digest
from mpidec.train.metrics import Meter
from mpidec.train.progress import Progress
from mpidec.train.record import RunFolder
from mpidec.world import World, init


def train(config: Config) -> None:
    """Train as ``config`` says; rank 0 shows the progress and writes the results."""
    world = init(device=config.device)
    options = {f"--{name.replace('_', '-')}": value for name, value in config.resolved().items()}
    refuse_differences(world.transport, options)
    dataset = data.load(config.data, world.transport)
    shards = data.Shards(len(dataset.train), world.size, config.batch_size, config.seed)
    network = make_network(config, world)
    torch.manual_seed(config.seed)
    model = models.build(config.model, dataset.sample, dataset.classes).to(world.device)
    # The same start everywhere, then draws of its own on every rank (dropout, say).
    torch.manual_seed(config.seed + 1 + world.rank)
    optimizer = make_optimizer(config, model, network, shards.steps)

    folder = RunFolder.create(config, network) if world.rank == 0 else None
    train_split, test_split = dataset.train.to(world.device), dataset.test.to(world.device)
    meter = Meter(optimizer)
    with Progress(config, network, folder, config.epochs * shards.steps) as progress:
        for epoch in range(1, config.epochs + 1):
            model.train()
            for batch in shards.batches(epoch, world.rank):
                with meter.phase("data"):
                    inputs, labels = train_split.inputs[batch], train_split.labels[batch]
                optimizer.zero_grad()
                with meter.phase("forward_backward"):
                    loss = nn.functional.cross_entropy(model(inputs), labels)
                    loss.backward()
                    meter.add_loss(loss)
                optimizer.step()
                progress.step()
            with meter.phase("evaluate"):
                evaluation = evaluate(world.transport, model, optimizer.flat, test_split)
            progress.epoch(meter.close_epoch(epoch, evaluation))
        digest = parameters_digest(world.transport, optimizer.flat.data)
        progress.finish(digest)


def make_network(config: Config, world: World) -> Network:
    """The graph and the collectives that ``config`` asks for."""
    graph = Topology.named("complete" if config.central else config.topology, world.size)
    collectives = world.collectives(config.collectives) if config.central else None
    return Network(world.transport, graph, collectives, config.seed)


def make_optimizer(config: Config, model: nn.Module, network: Network, steps_per_epoch: int) -> DistributedOptimizer:
    """The local step and the algorithm around it that ``config`` asks for."""
    direction, own = config.direction_options, config.algorithm_arguments
    if config.compressor is not None:
        own["compressor"] = compressor(config.compressor, **config.compressor_arguments)
    rule = algorithm(config.algorithm, **own, **(direction if config.owns_direction else {}))
    step = resolve_name(entry(config.algorithm).local)
    local = step(model.parameters(), lr=config.lr, **({} if config.owns_direction else direction))
    return DistributedOptimizer(local, model, rule, network, steps_per_epoch=steps_per_epoch)
