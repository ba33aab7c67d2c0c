"""The job of one rank, from options to results."""

from __future__ import annotations

from mpidec.communicator import Network
from mpidec.optim.agreement import by_rank_0, refuse_differences
from mpidec.topology import Topology
from mpidec.train import build, data, resume
from mpidec.train.config import Config
from mpidec.train.data.draws import seed_all, seed_of
from mpidec.train.evaluate import parameters_digest
from mpidec.train.gamma import agreed_gamma
from mpidec.train.keeper import Keeper
from mpidec.train.progress import Progress
from mpidec.train.record import RunFolder, Site
from mpidec.train.tensorboard import refuse_without_tensorboard
from mpidec.train.trace.write import start_trace, write_trace
from mpidec.train.trainer import Trainer
from mpidec.world import World, init


def train(config: Config) -> None:
    """Train as ``config`` says; rank 0 shows the progress and writes the results."""
    world = init(device=config.device)
    options = {f"--{name.replace('_', '-')}": value for name, value in config.resolved().items()}
    refuse_differences(world.transport, options)
    if config.tensorboard:
        by_rank_0(world.transport, refuse_without_tensorboard)
    begin = resume.origin(config, world.transport)
    dataset = data.load(build.source(config), world.transport)
    shards = build.shards(config, dataset, world.size)
    network = make_network(config, world)
    model = build.model(config, dataset)
    resume.load_average(begin, model, world.transport)
    model = model.to(world.device)
    # The same start everywhere, then draws of its own on every rank (dropout, say).
    seed_all(seed_of(config.seed, world.rank, 0, 0))
    config = agreed_gamma(config, network.topology, model, world.transport)

    clocks = start_trace(network) if config.trace else None
    trainer = Trainer(config, dataset, model, network, shards)
    trainer.try_one_batch()
    site = Site.of(network, config)
    position = resume.start(trainer, begin)
    folder = None
    if world.rank == 0:
        folder = RunFolder.open(config, site, begin.folder, begin.checkpoint, trainer.meter.last)
        folder.write_labels(build.label_counts(dataset, shards))
    keeper = Keeper(trainer, folder)
    last = config.epochs
    if config.stop_after is not None:
        last = min(last, position.epoch - 1 + config.stop_after)
    behind = trainer.optimizer.steps
    with Progress(config, site, folder, shards.steps, behind, trainer.meter.last) as progress:
        for epoch in range(position.epoch, last + 1):
            for batch in trainer.steps(epoch, position.batch if epoch == position.epoch else 0):
                progress.step()
                keeper.after_step(epoch, batch)
            evaluation = trainer.evaluate(epoch)
            progress.epoch(trainer.meter.close_epoch(epoch, evaluation))
            keeper.after_epoch(epoch, last)
        digest = parameters_digest(world.transport, trainer.optimizer.flat.data)
        if clocks is not None:
            write_trace(network, clocks, folder)
        progress.finish(digest)


def make_network(config: Config, world: World) -> Network:
    """The graph and the collectives that ``config`` asks for."""
    family = "complete" if config.central else config.topology
    # Some families need a library that takes time to import, or a search: rank 0 does it for all.
    graph = by_rank_0(world.transport, lambda: Topology.named(family, world.size))
    collectives = world.collectives(config.collectives) if config.central else None
    return Network(world.transport, graph, collectives, config.seed)
