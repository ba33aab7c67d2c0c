"""How good the models are: the average over the ranks, and each rank's own."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from mpidec.errors import NonFiniteError
from mpidec.flat import FlatBuffer
from mpidec.optim.agreement import one_by_one
from mpidec.optim.averaging import average, swapped
from mpidec.train.data.dataset import Samples
from mpidec.train.loss import cross_entropy, hits
from mpidec.transport.base import Transport

BATCH = 1024  # samples that are judged at once, at most
ENTRIES = 2**24  # of their inputs, at most


@dataclass(frozen=True)
class Evaluation:
    """Accuracies lie in 0 .. 1, and are shares of the samples, or of the tokens where each of these has a label.

    ``test_accuracy``, ``test_loss``: of the averaged model; ``..._local``: of each rank's own. ``consensus_distance``:
    the root mean square, over the ranks, of the norm of x_i minus the average.
    """

    test_accuracy: float
    test_accuracy_local: list[float]
    test_loss: float
    test_loss_local: list[float]
    consensus_distance: float


@torch.no_grad()
def evaluate(
    transport: Transport,
    model: nn.Module,
    flat: FlatBuffer,
    test: Samples,
    statistics: str = "average",
    training: Iterable[Tensor] = (),
) -> Evaluation:
    """Judge the models of all ranks on the same ``test`` samples; a collective call. Leaves the model as it was.

    ``statistics``, ``training``: see ``mpidec.averaged``. Raises ``NonFiniteError`` on every rank where one has
    diverged.
    """
    was_training, labels = model.training, targets(test)
    model.eval()
    local = scores(model, test)
    mean = average(transport, flat.data)
    squared = (flat.data - mean).double().square().sum().cpu()
    with swapped(transport, model, flat.data, mean, statistics, training):
        share = scores(model, test, transport.rank, transport.size)
    ranks = transport.all_gather_objects([*local.tolist(), *share.tolist(), squared.item()])
    for rank, row in enumerate(ranks):
        if not all(map(math.isfinite, row)):
            raise NonFiniteError(
                f"the parameters of rank {rank}, or their average, hold NaN or infinity: lower the learning rate or "
                "gamma, and take no fp16 where values pass 65,504"
            )
    model.train(was_training)
    right, losses, right_of_mean, losses_of_mean, distances = zip(*ranks, strict=True)
    return Evaluation(
        test_accuracy=sum(right_of_mean) / labels,
        test_accuracy_local=[one / labels for one in right],
        test_loss=sum(losses_of_mean) / labels,
        test_loss_local=[one / labels for one in losses],
        consensus_distance=(sum(distances) / len(ranks)) ** 0.5,
    )


def scores(model: Callable[[Tensor], Tensor], samples: Samples, first: int = 0, every: int = 1) -> Tensor:
    """How many labels the model names right, and its loss summed over the labels: float64 of shape ``(2,)``.

    Of each sample ``first``, ``first + every``, ...
    """
    total = torch.zeros(2, dtype=torch.float64)
    together = max(1, min(BATCH, ENTRIES // max(1, math.prod(samples.sample))))
    mine = torch.arange(len(samples))[first::every]
    for inputs, labels in samples.batches(mine.split(together) if len(mine) else ()):
        outputs = model(inputs)
        both = torch.stack([hits(outputs, labels).double(), cross_entropy(outputs, labels).double() * labels.numel()])
        total = total.to(labels.device) + both
    return total


def targets(samples: Samples) -> int:
    """How many labels there are to be named: one a sample, or one a token."""
    return len(samples) if samples.labels is None else samples.labels.numel()


def parameters_digest(transport: Transport, x: Tensor) -> str:
    """sha256 over the bytes of every rank's parameters in rank order; the empty string on other ranks than 0."""
    mine = x.detach().cpu().view(torch.uint8)
    digest = hashlib.sha256()
    for theirs in one_by_one(transport, mine, [mine.numel()] * transport.size):
        digest.update(theirs.numpy().tobytes())
    return digest.hexdigest() if transport.rank == 0 else ""
