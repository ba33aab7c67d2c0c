"""A training on the rows of one process and the same training on real ranks take the same steps."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from mpidec import World
from mpidec.simulate.training import Training
from mpidec.train import build, data
from mpidec.train.config import Config
from mpidec.train.data.dataset import Dataset
from mpidec.train.data.source import Source
from mpidec.train.evaluate import evaluate
from mpidec.train.job import make_network

STEPS = 50
RUNS = {
    "choco sign": {"gamma": 0.4},
    "choco random-k": {"compressor": "random-k", "ratio": 0.1, "gamma": 0.1, "partition": "sorted"},
    "dcd qsgd": {"partition": "dirichlet:0.5"},
    "ecd qsgd": {"topology": "chain"},
    "deepsqueeze top-k": {"compressor": "top-k", "ratio": 0.1, "gamma": 0.1},
    "naive sign": {"gamma": 0.2},
    "dpsgd": {"topology": "one_peer_exponential", "model": "logistic"},
    "dgc": {"ratio": 0.05, "warmup_epochs": 2.0},
    "allreduce": {"partition": "dirichlet:0.5"},
    "allreduce fp16": {"compressor": "fp16"},
    "local": {"period": 3, "start_epoch": 1.0},
    "sign": {},
    "ef-sign": {},
    "local-sign": {},
    "local-ef-sign": {},
}


def config_of(name: str) -> Config:
    algorithm = name.split()[0]
    return Config(algorithm=algorithm, dtype="float64", batch_size=32, seed=3, collectives="mpi", **RUNS[name])


def steps_of_a_rank(world: World, config: Config, dataset: Dataset, optimizer, model: nn.Module) -> Iterator[Tensor]:
    """The parameters of this rank after each step, as the job takes it."""
    shards = build.shards(config, dataset, world.size)
    samples = dataset.train.to(world.device, build.dtype(config))
    for epoch in itertools.count(1):
        model.train()
        for batch in shards.batches(epoch, world.rank):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(samples.inputs[batch]), samples.labels[batch]).backward()
            optimizer.step()
            yield optimizer.flat.data


def steps_of_rows(training: Training) -> Iterator[Tensor]:
    """The parameters of all ranks after each step."""
    for epoch in itertools.count(1):
        for _ in training.epoch(epoch):
            yield training.x


@pytest.mark.mpi(min_size=2)
@pytest.mark.filterwarnings("ignore:Naive forgets")
@pytest.mark.parametrize("name", RUNS)
def test_every_step_on_rows_is_that_of_the_ranks(world: World, name: str) -> None:
    config = config_of(name)
    dataset, network = data.load(Source(config.data), world.transport), make_network(config, world)
    model = build.model(config, dataset)
    shards = build.shards(config, dataset, world.size)
    optimizer = build.optimizer(config, model, network, shards.steps)
    training = Training(config, dataset, network.topology)
    assert torch.equal(training.x[world.rank], optimizer.flat.data), "both start alike"

    ranks, rows = steps_of_a_rank(world, config, dataset, optimizer, model), steps_of_rows(training)
    for step, mine, x in zip(range(1, STEPS + 1), ranks, rows, strict=False):
        torch.testing.assert_close(mine, x[world.rank], rtol=0, atol=1e-10, msg=lambda text: f"step {step}: {text}")  # noqa: B023
        sent = sum(world.transport.all_gather_objects(optimizer.comm.bytes_sent))
        assert sent == training.comm.bytes_sent, f"step {step}"
    assert training.comm.bytes_sent > 0

    there = evaluate(world.transport, model, optimizer.flat, dataset.test.to(world.device, torch.float64))
    here = training.evaluate()
    assert here.test_accuracy == there.test_accuracy > 0.3
    assert here.test_accuracy_local == there.test_accuracy_local
    assert here.consensus_distance == pytest.approx(there.consensus_distance, rel=1e-6, abs=1e-12)
