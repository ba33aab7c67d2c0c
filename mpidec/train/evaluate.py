"""How good the models are: the average over the ranks, and each rank's own."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from mpidec.errors import NonFiniteError
from mpidec.flat import FlatBuffer
from mpidec.train.data import Split
from mpidec.transport.base import Transport

BATCH = 1024  # samples that are judged at once


@dataclass(frozen=True)
class Evaluation:
    """Accuracies lie in 0 .. 1. ``test_accuracy``: of the averaged model; ``test_accuracy_local``: of each rank's own.

    ``consensus_distance``: the root mean square, over the ranks, of the norm of x_i minus the average.
    """

    test_accuracy: float
    test_accuracy_local: list[float]
    consensus_distance: float


@torch.no_grad()
def evaluate(transport: Transport, model: nn.Module, flat: FlatBuffer, test: Split) -> Evaluation:
    """Judge the models of all ranks on the same ``test`` samples; a collective call. Leaves the model as it was.

    Raises ``NonFiniteError`` on every rank where one has diverged.
    """
    was_training = model.training
    model.eval()
    local = int(correct(model, test)) / len(test)
    mean = average(transport, flat.data)
    squared = float((flat.data - mean).double().square().sum())
    share = Split(test.inputs[transport.rank :: transport.size], test.labels[transport.rank :: transport.size])
    with averaged(transport, model, flat, mean):
        hits = correct(model, share)
    rows = transport.all_gather_objects((local, squared, int(hits)))
    for rank, row in enumerate(rows):
        if not math.isfinite(row[1]):
            raise NonFiniteError(
                f"the parameters of rank {rank}, or their average, hold NaN or infinity: lower the learning rate or "
                "gamma, and take no fp16 where values pass 65,504"
            )
    model.train(was_training)
    return Evaluation(
        test_accuracy=sum(row[2] for row in rows) / len(test),
        test_accuracy_local=[row[0] for row in rows],
        consensus_distance=(sum(row[1] for row in rows) / len(rows)) ** 0.5,
    )


@contextmanager
def averaged(transport: Transport, model: nn.Module, flat: FlatBuffer, mean: Tensor) -> Iterator[None]:
    """The averaged model in the place of this rank's: ``mean`` parameters, and means of the floating-point buffers.

    Integer buffers, such as BatchNorm's counters, stay this rank's own.
    """
    buffers = [buffer for buffer in model.buffers() if buffer.dtype.is_floating_point]
    kept = [tensor.clone() for tensor in (flat.data, *buffers)]
    for buffer in buffers:
        buffer.copy_(average(transport, buffer))
    flat.data.copy_(mean)
    try:
        yield
    finally:
        for tensor, values in zip((flat.data, *buffers), kept, strict=True):
            tensor.copy_(values)


def average(transport: Transport, values: Tensor) -> Tensor:
    """The mean of ``values`` over the ranks, in float32 at least."""
    total = values.to(torch.promote_types(values.dtype, torch.float32), copy=True)
    transport.all_reduce(total)
    return total / transport.size


def correct(model: Callable[[Tensor], Tensor], samples: Split) -> Tensor:
    """How many of the ``samples`` the model names right."""
    hits = torch.zeros((), dtype=torch.int64, device=samples.labels.device)
    for inputs, labels in zip(samples.inputs.split(BATCH), samples.labels.split(BATCH), strict=True):
        if len(labels):
            hits = hits + (model(inputs).argmax(-1) == labels).sum()
    return hits


def parameters_digest(transport: Transport, x: Tensor) -> str:
    """sha256 over the bytes of every rank's parameters in rank order; the empty string on other ranks than 0.

    They come to rank 0 one after the other, so that it never holds more than two.
    """
    mine = x.detach().cpu().view(torch.uint8)
    digest = hashlib.sha256(mine.numpy().tobytes() if transport.rank == 0 else b"")
    for rank in range(1, transport.size):
        if transport.rank == 0:
            exchange = transport.exchange(mine, [], [rank])
            digest.update(exchange.wait()[rank].numpy().tobytes())
            exchange.release()
        elif transport.rank == rank:
            transport.exchange(mine, [0], []).wait()
    return digest.hexdigest() if transport.rank == 0 else ""
