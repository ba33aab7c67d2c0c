"""A network that all ranks train in this process: the options of ``mpidec.train``, and its numbers."""

from __future__ import annotations

import dataclasses

from mpidec.errors import UserError
from mpidec.simulate import options
from mpidec.simulate.settings import graph_of, refuse_too_many
from mpidec.simulate.training import Training
from mpidec.train import build, data
from mpidec.train.config import Config
from mpidec.train.gamma import agreed_gamma
from mpidec.train.metrics import Stopwatch, epoch_line
from mpidec.train.progress import Progress
from mpidec.train.record import RunFolder, Site
from mpidec.world import init


def simulate(chosen: options.Network) -> None:
    """Train, show the progress and write the folder of a run."""
    config = Config(**{field.name: getattr(chosen, field.name) for field in dataclasses.fields(Config)})
    if config.collectives != "auto":
        raise UserError(f"rows are summed here, by no --collectives {config.collectives}: leave it out")
    refuse_too_many(chosen.ranks, 1)
    world = init(device=config.device)
    dataset = data.load(config.data, world.transport)
    build.shards(config, dataset, chosen.ranks)  # which refuses too many ranks before a graph of them is built
    graph = graph_of(config, chosen.ranks)
    config = agreed_gamma(config, graph, build.model(config, dataset), world.transport)
    training = Training(config, dataset, graph, world.device)
    site = Site(graph.size, graph.name, "rows" if config.central else "none", "none, all ranks in one process")
    watch, rate = Stopwatch(), float(config.lr or 0)
    with Progress(config, site, RunFolder.create(config, site), config.epochs * training.shards.steps) as progress:
        for epoch in range(1, config.epochs + 1):
            losses = []
            with watch.phase("train"):
                for loss in training.epoch(epoch):
                    losses.append(float(loss.mean()))
                    progress.step()
            with watch.phase("evaluate"):
                evaluation = training.evaluate()
            mean_loss, sent = sum(losses) / len(losses), training.comm.bytes_sent / graph.size
            progress.epoch(epoch_line(epoch, training.steps, rate, mean_loss, evaluation, sent, watch, watch.seconds))
        progress.finish(training.digest())
