"""The averaged model, which is what a decentralized run is judged by, in the place of each rank's own for a while."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import update_bn

from mpidec.optim.distributed import DistributedOptimizer
from mpidec.transport.base import Transport

RECOMPUTED = 64  # batches of a rank that statistics are formed on


@contextmanager
def averaged(
    model: nn.Module, optimizer: DistributedOptimizer, statistics: str = "average", training: Iterable[Tensor] = ()
) -> Iterator[None]:
    """Inside, ``model`` holds the mean over the ranks; afterwards this rank's own again. A collective call to enter.

    With the mean parameters come buffers such as BatchNorm's statistics. ``statistics``: ``average`` takes the means of
    floating-point buffers over the ranks, and leaves integers, such as BatchNorm's counters, this rank's own; ``local``
    leaves all of them this rank's own; ``recompute`` forms those of BatchNorm anew, for the averaged parameters, on up
    to ``RECOMPUTED`` batches of inputs from ``training`` on each rank, and averages them.
    """
    transport, x = optimizer.comm.transport, optimizer.flat.data
    with torch.no_grad(), swapped(transport, model, x, average(transport, x), statistics, training):
        yield


@contextmanager
def swapped(
    transport: Transport, model: nn.Module, x: Tensor, mean: Tensor, statistics: str, training: Iterable[Tensor]
) -> Iterator[None]:
    """``mean`` in the place of ``x``, the flat parameters of ``model``; see ``averaged``."""
    buffers = list(model.buffers())
    kept = [tensor.clone() for tensor in (x, *buffers)]
    try:
        x.copy_(mean)
        if statistics == "recompute":
            update_bn(islice(training, RECOMPUTED), model)
        if statistics != "local":
            for buffer in buffers:
                if buffer.dtype.is_floating_point:
                    buffer.copy_(average(transport, buffer))
        yield
    finally:
        for tensor, values in zip((x, *buffers), kept, strict=True):
            tensor.copy_(values)


def average(transport: Transport, values: Tensor) -> Tensor:
    """The mean of ``values`` over the ranks, in float32 at least."""
    total = values.to(torch.promote_types(values.dtype, torch.float32), copy=True)
    transport.all_reduce(total)
    return total / transport.size
