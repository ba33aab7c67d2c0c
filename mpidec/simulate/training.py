"""The ranks of a training as rows: the same rule, local step, samples and draws as those of an MPI job."""

from __future__ import annotations

import hashlib
import math
import warnings
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap

from mpidec.errors import NonFiniteError, UserError
from mpidec.flat import FlatBuffer
from mpidec.optim.base import Step
from mpidec.optim.checks import refuse_second_direction, unwise
from mpidec.rows import Rows
from mpidec.topology import Topology
from mpidec.train import build, local
from mpidec.train.config import Config
from mpidec.train.data.dataset import Dataset, Split
from mpidec.train.evaluate import Evaluation, scores, targets
from mpidec.train.loss import cross_entropy
from mpidec.train.schedule import scheduler

Named = dict[str, Tensor]
CHUNK = 64  # models that are judged at once


class Training:
    """Row i of ``x``, shape ``(n, d)``, holds the parameters of rank i; all of them start as the seed says.

    ``config`` must name its gamma. Dropout and the like draw for each rank, but not what an MPI rank draws.
    """

    def __init__(self, config: Config, dataset: Dataset, graph: Topology, device: torch.device | None = None) -> None:
        self.config, self.graph = config, graph
        self.device = device or torch.device("cpu")
        self.shards = build.shards(config, dataset, graph.size)
        dtype = build.dtype(config)
        if not (isinstance(dataset.train, Split) and isinstance(dataset.test, Split)):
            raise UserError(
                "the simulator needs all samples in memory, and this data set loads them batch by batch: take another"
            )
        self.samples, self.test = dataset.train.to(self.device, dtype), dataset.test.to(self.device, dtype)
        self.model = build.model(config, dataset).to(self.device)
        if any(isinstance(layer, nn.RNNBase) for layer in self.model.modules()):
            raise UserError(
                f"the simulator cannot train {config.model}, since torch batches no recurrent networks over ranks: "
                "train it with mpidec.train"
            )
        torch.manual_seed(config.seed + 1)
        self.flat, self.comm = FlatBuffer(self.model), Rows(graph, config.seed)
        self.x = self.flat.data.expand(graph.size, -1).clone()
        self.buffers = {name: b.expand(graph.size, *b.shape).clone() for name, b in self.model.named_buffers()}
        self._parameter = nn.Parameter(self.x)
        self._parameter.grad = torch.zeros_like(self.x)
        self.local, self.rule = local.made(config, [self._parameter]), build.rule(config)
        refuse_second_direction(self.local, self.rule)
        self.scheduler = scheduler(config, self.local, graph, self.shards.steps)
        self.rule.compressor.bind(self.flat.sizes, self.comm.noise)
        if reason := unwise(self.rule, self.local):
            warnings.warn(reason, stacklevel=2)
        self.steps, self.rate = 0, 0.0
        self._gradients = vmap(grad_and_value(self._loss), randomness="different")
        with torch.no_grad():
            self.rule.start(self.x, self.comm)

    def epoch(self, number: int) -> Iterator[Tensor]:
        """Train epoch ``number``, counted from 1; after each step, the losses of all ranks, shape ``(n,)``."""
        self.model.train()
        for batches in self.shards.steps_of(number):
            yield self._step(*self.samples.batch(batches))

    def _step(self, inputs: Tensor, labels: Tensor) -> Tensor:
        """``inputs`` of shape ``(n, batch, ...)``."""
        gradients, losses = self._gradients(self._named(self.x), self.buffers, inputs, labels)
        g = self._parameter.grad
        assert g is not None, "nobody takes the gradient away"
        for segment in self.flat.segments:
            g[:, segment.place] = gradients[segment.name].flatten(1)
        self._refuse_non_finite(g)
        self.steps += 1
        if self.rule.synchronous and self.graph.size > 1:
            # What real ranks tell each other of missing gradients and overflows.
            self.comm.bytes_sent += self.graph.size * (len(self.flat.segments) + 1)
        step = Step(self.steps, self.steps / self.shards.steps)
        with torch.no_grad():
            self.rule.run(self.x, g, self.comm, step, self.local.step)
        self.rate = self.local.param_groups[0]["lr"]
        if self.steps < self.config.epochs * self.shards.steps:
            self.scheduler.step()
        each: Tensor = losses.detach()
        return each

    def _loss(self, parameters: Named, buffers: Named, inputs: Tensor, labels: Tensor) -> Tensor:
        outputs = functional_call(self.model, (parameters, buffers), (inputs,))
        return cross_entropy(outputs, labels)

    def _named(self, rows: Tensor) -> Named:
        """Parameters by name as views of ``rows``, shape ``(..., d)``."""
        return {s.name: rows[..., s.place].view(*rows.shape[:-1], *s.shape) for s in self.flat.segments}

    def _refuse_non_finite(self, g: Tensor) -> None:
        if torch.isfinite(g.sum(dtype=torch.float64)):
            return
        for segment in self.flat.segments:
            bad = ~torch.isfinite(g[:, segment.place]).all(-1)
            if bad.any():
                rank = int(bad.nonzero()[0])
                raise NonFiniteError(
                    f"rank {rank}, step {self.steps + 1}: the gradient of parameter {segment.name!r} holds NaN or "
                    "infinity; lower the learning rate or gamma"
                )

    @torch.no_grad()
    def evaluate(self) -> Evaluation:
        """Judge every rank's model and their average on the test samples.

        Raises ``NonFiniteError`` where one has diverged.
        """
        self.model.eval()
        mean = self.x.mean(0)
        distance = float((self.x - mean).double().square().sum(-1).mean().sqrt())
        if not math.isfinite(distance):
            raise NonFiniteError(
                "the parameters of a rank, or their average, hold NaN or infinity: lower the learning rate or gamma"
            )
        average = {name: b.mean(0) for name, b in self.buffers.items() if b.dtype.is_floating_point}
        average |= {name: b[0] for name, b in self.buffers.items() if not b.dtype.is_floating_point}

        def judged(parameters: Named, buffers: Named) -> Tensor:
            return scores(lambda inputs: functional_call(self.model, (parameters, buffers), (inputs,)), self.test)

        right, loss = (judged(self._named(mean), average) / targets(self.test)).tolist()
        each = vmap(judged, chunk_size=CHUNK)(self._named(self.x), self.buffers) / targets(self.test)
        accuracies, losses = each.T.tolist()
        return Evaluation(right, accuracies, loss, losses, distance)

    def digest(self) -> str:
        """sha256 over the bytes of every rank's parameters in rank order, as of an MPI job."""
        return hashlib.sha256(self.x.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes()).hexdigest()
