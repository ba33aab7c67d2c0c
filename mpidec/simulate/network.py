"""A network that all ranks train in this process: the options of ``mpidec.train``, and its numbers."""

from __future__ import annotations

import dataclasses

import torch

from mpidec.errors import UserError
from mpidec.simulate import options
from mpidec.simulate.settings import graph_of, refuse_too_many
from mpidec.simulate.training import Training
from mpidec.train import build, data
from mpidec.train.config import Config
from mpidec.train.gamma import agreed_gamma
from mpidec.train.metrics import Stopwatch, epoch_line
from mpidec.train.options.step import OPTIMIZERS
from mpidec.train.progress import Progress
from mpidec.train.record import RunFolder, Site
from mpidec.world import init

# What rows do not do.
LACKING = (
    "workers",
    "augment",
    "accumulate",
    "decay",
    "clip_norm",
    "amp",
    "compile",
    "batch_norm",
    "save_every",
    "save_every_steps",
    "stop_after",
    "resume",
    "resume_as",
    "trace",
)
# Optimizers that treat every entry of a parameter alike, so that a row moves as a rank's parameters do.
ENTRYWISE = OPTIMIZERS


def refuse_lacking(config: Config) -> None:
    """Raise ``UserError`` for an option of ``mpidec.train`` that only real ranks have."""
    for name in LACKING:
        if getattr(config, name) != getattr(Config, name):
            option = f"--{name.replace('_', '-')}"
            raise UserError(f"{option} is for real ranks: leave it out here, or run mpirun python -m mpidec.train")
    if config.optimizer not in (None, *ENTRYWISE):
        raise UserError(
            f"--optimizer {config.optimizer} looks at whole tensors, which rows do not show it: take one of "
            f"{', '.join(ENTRYWISE)}"
        )


def simulate(chosen: options.Network) -> None:
    """Train, show the progress and write the folder of a run."""
    config = Config(**{field.name: getattr(chosen, field.name) for field in dataclasses.fields(Config)})
    if config.collectives != "auto":
        raise UserError(f"rows are summed here, by no --collectives {config.collectives}: leave it out")
    refuse_lacking(config)
    refuse_too_many(chosen.ranks, 1)
    world = init(device=config.device)
    dataset = data.load(build.source(config), world.transport)
    build.shards(config, dataset, chosen.ranks)  # which refuses too many ranks before a graph of them is built
    graph = graph_of(config, chosen.ranks)
    config = agreed_gamma(config, graph, build.model(config, dataset), world.transport)
    training = Training(config, dataset, graph, world.device)
    site = Site(graph.size, graph.name, "rows" if config.central else "none", "none, all ranks in one process")
    watch, folder = Stopwatch(), RunFolder.create(config, site)
    with Progress(config, site, folder, training.shards.steps) as progress:
        for epoch in range(1, config.epochs + 1):
            losses = []
            with watch.phase("train"):
                for loss in training.epoch(epoch):
                    losses.append(loss)
                    progress.step()
            with watch.phase("evaluate"):
                evaluation = training.evaluate()
            each, sent = torch.stack(losses).double().mean(0).tolist(), training.comm.bytes_sent / graph.size
            progress.epoch(
                epoch_line(epoch, training.steps, training.rate, each, evaluation, sent, watch, [watch.seconds])
            )
        progress.finish(training.digest())
