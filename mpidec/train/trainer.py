"""One rank's training: forward and backward passes, the step, and what follows it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from itertools import islice
from typing import TypeVar

import torch
from torch import Tensor, nn

from mpidec.communicator import Network
from mpidec.errors import UserError
from mpidec.optim.scaler import EqualScaler
from mpidec.train import build
from mpidec.train.config import Config
from mpidec.train.data.augment import augment, refuse_other_than_images
from mpidec.train.data.dataset import Batch, Dataset
from mpidec.train.data.draws import generator_of, seed_of, seeded
from mpidec.train.data.shards import Shards
from mpidec.train.evaluate import Evaluation, evaluate
from mpidec.train.foreign import told
from mpidec.train.loss import cross_entropy
from mpidec.train.metrics import Meter
from mpidec.train.schedule import scheduler

Item = TypeVar("Item")
PRECISIONS = {"bf16": torch.bfloat16, "fp16": torch.float16}


class Trainer:
    """What ``config`` asks for, around a ``model`` on its device; ``shards`` say which samples this rank takes when.

    Making one is a collective call: all ranks take rank 0's parameters, and the rule starts.
    """

    def __init__(self, config: Config, dataset: Dataset, model: nn.Module, network: Network, shards: Shards) -> None:
        self.config, self.model, self.network, self.shards = config, model, network, shards
        self.device = next(model.parameters()).device
        if config.augment:
            refuse_other_than_images(dataset.sample)
        self.train_samples = dataset.train.to(self.device, build.dtype(config))
        self.test_samples = dataset.test.to(self.device, build.dtype(config))
        self.optimizer = build.optimizer(config, model, network, shards.steps)
        self.scheduler = scheduler(config, self.optimizer, network.topology, shards.steps)
        self.scaler = EqualScaler(network.transport, self.device, enabled=config.amp == "fp16")
        self.meter = Meter(self.optimizer)
        self._forward = torch.compile(model) if config.compile else model

    @torch.no_grad()
    def try_one_batch(self) -> None:
        """Raise ``UserError`` where the model fails on this rank's first batch; leaves everything as it was."""
        batch = next(iter(self.shards.batches(1, self.network.rank)))[: self.config.batch_size]
        kept = [buffer.clone() for buffer in self.model.buffers()]
        self.model.train()
        with seeded(self.config.seed):
            inputs, labels = next(self.train_samples.batches([batch], [self.config.seed]))
            try:
                with self._precision():
                    cross_entropy(self.model(inputs), labels)
            except UserError:
                raise
            except Exception as error:  # a user's model may fail in any way
                raise UserError(
                    f"--model {self.config.model} fails in training mode on a batch of {len(labels)} samples of shape "
                    f"{tuple(inputs.shape[1:])} ({told(error)}): change the model, or --batch-size"
                ) from error
            finally:
                for buffer, values in zip(self.model.buffers(), kept, strict=True):
                    buffer.copy_(values)

    def steps(self, epoch: int, first: int = 0) -> Iterator[int]:
        """Take the steps of ``epoch`` from its batch ``first`` on, counted from 0; yields how many batches are done."""
        self.model.train()
        for done, (inputs, labels) in enumerate(self._timed(self._batches(epoch, first)), start=first + 1):
            if self.config.augment:
                inputs = augment(inputs, generator_of(self.config.seed, self.network.rank, epoch, done))
            self._step(inputs, labels)
            yield done

    def _batches(self, epoch: int, first: int = 0) -> Iterator[Batch]:
        """What this rank learns from in ``epoch``, from its batch ``first`` on; dealt once somebody asks for it."""
        rank = self.network.rank
        indices = islice(self.shards.batches(epoch, rank), first, None)
        seeds = (seed_of(self.config.seed, rank, epoch, number) for number in range(first, self.shards.steps))
        yield from self.train_samples.batches(indices, seeds)

    def _timed(self, items: Iterator[Item]) -> Iterator[Item]:
        while True:
            with self.meter.phase("data"):
                item = next(items, None)
            if item is None:
                return
            yield item

    def _step(self, inputs: Tensor, labels: Tensor) -> None:
        """One step on a batch, in as many passes as gradients are added up over."""
        self.optimizer.zero_grad()
        passes, losses = self.config.accumulate, list[Tensor]()
        for some, theirs in zip(inputs.chunk(passes), labels.chunk(passes), strict=True):
            with self.meter.phase("forward_backward"):
                with self._precision():
                    loss = cross_entropy(self._forward(some), theirs) / passes
                self.scaler.scale(loss).backward()
            losses.append(loss.detach())
        self.meter.add_loss(torch.stack(losses).sum())
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.meter.rate = self.optimizer.param_groups[0]["lr"]
        if self.optimizer.steps < self.config.epochs * self.shards.steps:  # no scheduler is made for more
            self.scheduler.step()

    def _precision(self) -> AbstractContextManager[None]:
        if self.config.amp == "none":
            return nullcontext()
        mixed: AbstractContextManager[None] = torch.autocast(self.device.type, PRECISIONS[self.config.amp])
        return mixed

    def evaluate(self, epoch: int) -> Evaluation:
        """Judge the averaged model and each rank's own; a collective call."""
        rank, seed = self.network.rank, self.config.seed
        # What is drawn here takes nothing from the draws of the training.
        with self.meter.phase("evaluate"), seeded(seed_of(seed, rank, epoch, self.shards.steps)):
            return evaluate(
                self.network.transport,
                self.model,
                self.optimizer.flat,
                self.test_samples,
                self.config.batch_norm,
                (inputs for inputs, _ in self._batches(epoch)),
            )
