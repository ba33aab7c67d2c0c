"""The job of one rank, from options to results."""

from __future__ import annotations

import torch
from torch import nn

from mpidec.communicator import Network
from mpidec.optim.agreement import refuse_differences
from mpidec.optim.distributed import DistributedOptimizer
from mpidec.topology import Topology
from mpidec.train import build, data
from mpidec.train.config import Config
from mpidec.train.evaluate import evaluate, parameters_digest
from mpidec.train.gamma import agreed_gamma
from mpidec.train.metrics import Meter
from mpidec.train.progress import Progress
from mpidec.train.record import RunFolder, Site
from mpidec.world import World, init


def train(config: Config) -> None:
    """Train as ``config`` says; rank 0 shows the progress and writes the results."""
    world = init(device=config.device)
    options = {f"--{name.replace('_', '-')}": value for name, value in config.resolved().items()}
    refuse_differences(world.transport, options)
    dataset = data.load(config.data, world.transport)
    shards = build.shards(config, dataset, world.size)
    network = make_network(config, world)
    model = build.model(config, dataset).to(world.device)
    # The same start everywhere, then draws of its own on every rank (dropout, say).
    torch.manual_seed(config.seed + 1 + world.rank)
    config = agreed_gamma(config, network.topology, model, world.transport)
    optimizer = make_optimizer(config, model, network, shards.steps)

    site = Site.of(network, config)
    folder = RunFolder.create(config, site) if world.rank == 0 else None
    dtype = build.dtype(config)
    train_split, test_split = dataset.train.to(world.device, dtype), dataset.test.to(world.device, dtype)
    meter = Meter(optimizer)
    with Progress(config, site, folder, config.epochs * shards.steps) as progress:
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
    local, rule = build.local_step(config, model.parameters()), build.rule(config)
    return DistributedOptimizer(local, model, rule, network, steps_per_epoch=steps_per_epoch)
