"""Data sets, and which samples a rank sees in an epoch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pkgutil import resolve_name

import numpy as np
import torch
from torch import Tensor

from mpidec.errors import UserError
from mpidec.train.names import DATA
from mpidec.transport.base import Transport


@dataclass(frozen=True)
class Split:
    """``inputs``: float32 of shape ``(samples, ...)``; ``labels``: int64 of shape ``(samples,)``."""

    inputs: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def to(self, device: torch.device) -> Split:
        """The same samples on ``device``."""
        return Split(self.inputs.to(device), self.labels.to(device))


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
    """The samples of every epoch, shuffled anew by ``seed`` and dealt to the ranks.

    Every rank takes the same number of steps with full batches, and every sample is seen: ranks whose shard ends early
    begin it again. Raises ``UserError`` where a rank would have no sample, or less than one batch.
    """

    samples: int
    ranks: int
    batch_size: int
    seed: int

    def __post_init__(self) -> None:
        if self.ranks > self.samples:
            raise UserError(f"{self.ranks} ranks cannot share {self.samples} training samples: start fewer ranks")
        if self.batch_size > self.shard:
            raise UserError(
                f"a batch of {self.batch_size} is larger than a rank's shard of {self.shard} samples "
                f"({self.samples} over {self.ranks} ranks): lower --batch-size, or start fewer ranks"
            )

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
        order = np.random.default_rng((self.seed, epoch)).permutation(self.samples)
        mine = np.resize(order[rank :: self.ranks], self.steps * self.batch_size)
        yield from torch.from_numpy(mine).split(self.batch_size)
