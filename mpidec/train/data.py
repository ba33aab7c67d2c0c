"""Data sets, and which samples a rank sees in an epoch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pkgutil import resolve_name

import numpy as np
import torch
from torch import Tensor

from mpidec.errors import UserError
from mpidec.train.names import DATA, Partition
from mpidec.train.partition import Indices, parts
from mpidec.transport.base import Transport


@dataclass(frozen=True)
class Split:
    """``inputs``: float32 of shape ``(samples, ...)``; ``labels``: int64 of shape ``(samples,)``."""

    inputs: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def to(self, device: torch.device, dtype: torch.dtype = torch.float32) -> Split:
        """The same samples on ``device``, the inputs in ``dtype``."""
        return Split(self.inputs.to(device, dtype), self.labels.to(device))


@dataclass(frozen=True)
class Dataset:
    """Samples to learn from and samples to judge by."""

    train: Split
    test: Split
    classes: int

    @property
    def sample(self) -> tuple[int, ...]:
        """Shape of one sample."""
        return tuple(self.train.inputs.shape[1:])


def digits() -> Dataset:
    """1,797 handwritten digits, 8 x 8 pixels in 0 .. 1, which come with scikit-learn (from the UCI repository).

    A fifth of them, the same in every run, is held out for testing.
    """
    from sklearn.datasets import load_digits

    bunch = load_digits()
    order = np.random.default_rng(0).permutation(len(bunch.target))
    inputs = torch.from_numpy((bunch.images[order] / 16).astype(np.float32))
    labels = torch.from_numpy(bunch.target[order].astype(np.int64))
    held_out = len(labels) // 5
    return Dataset(Split(inputs[held_out:], labels[held_out:]), Split(inputs[:held_out], labels[:held_out]), 10)


def load(name: str, transport: Transport) -> Dataset:
    """The data set ``name`` of the table, read by rank 0 and sent to the others, which need not import its library."""
    dataset: Dataset = transport.broadcast_object(resolve_name(DATA[name])() if transport.rank == 0 else None)
    return dataset


@dataclass(frozen=True)
class Shards:
    """The samples of every epoch as the ranks see them: dealt by ``partition``, in a new order each time.

    Every rank takes the same number of steps with full batches, and every sample is seen: ranks whose shard ends early
    begin it again. ``labels``: of all training samples, shape ``(samples,)``. Raises ``UserError`` where a rank would
    have no sample, or less than one batch.
    """

    labels: Tensor
    ranks: int
    batch_size: int
    seed: int
    partition: Partition = Partition()  # noqa: RUF009 - frozen

    def __post_init__(self) -> None:
        if self.ranks > self.samples:
            raise UserError(f"{self.ranks} ranks cannot share {self.samples} training samples: start fewer ranks")
        if self.batch_size > self.shard:
            raise UserError(
                f"a batch of {self.batch_size} is larger than a rank's shard of {self.shard} samples "
                f"({self.samples} over {self.ranks} ranks): lower --batch-size, or start fewer ranks"
            )

    @property
    def samples(self) -> int:
        """Of all ranks."""
        return len(self.labels)

    @property
    def shard(self) -> int:
        """Samples of the largest shard."""
        return -(-self.samples // self.ranks)

    @property
    def steps(self) -> int:
        """Steps of an epoch, on every rank."""
        return -(-self.shard // self.batch_size)

    def batches(self, epoch: int, rank: int) -> Iterator[Tensor]:
        """The indices of each batch of ``rank`` in ``epoch``, int64 of shape ``(batch_size,)``."""
        return self._batches(self._parts(epoch)[rank], epoch, rank)

    def steps_of(self, epoch: int) -> Iterator[Tensor]:
        """The indices of the batches of all ranks, step by step: int64 of shape ``(ranks, batch_size)``."""
        ranks = (self._batches(mine, epoch, rank) for rank, mine in enumerate(self._parts(epoch)))
        for together in zip(*ranks, strict=True):
            yield torch.stack(together)

    def _parts(self, epoch: int) -> list[Indices]:
        return parts(self.labels.numpy(), self.ranks, self.partition, self.seed, epoch)

    def _batches(self, mine: Indices, epoch: int, rank: int) -> Iterator[Tensor]:
        if self.partition.kind != "iid":
            mine = np.random.default_rng((self.seed, epoch, rank)).permutation(mine)
        yield from torch.from_numpy(np.resize(mine, self.steps * self.batch_size)).split(self.batch_size)
