"""Which samples a rank sees in an epoch, and in which order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from mpidec.errors import UserError
from mpidec.train.data.dataset import Samples
from mpidec.train.data.partition import Indices, parts
from mpidec.train.names import Partition


@dataclass(frozen=True)
class Shards:
    """The samples of every epoch as the ranks see them: dealt by ``partition``, in a new order each time.

    Every rank takes the same number of steps with full batches, and every sample is seen: ranks whose shard ends early
    begin it again. ``labels``: of all training samples, shape ``(samples,)``, on the CPU. Raises ``UserError`` where a
    rank would have no sample, or less than one batch.
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

    @classmethod
    def of(cls, samples: Samples, ranks: int, batch_size: int, seed: int, partition: Partition) -> Shards:
        """Of any training samples. Raises ``UserError`` where they have no labels that ``partition`` could go by."""
        return cls(_labels(samples, partition), ranks, batch_size, seed, partition)

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
        return self._batches(self.parts(epoch)[rank], epoch, rank)

    def steps_of(self, epoch: int) -> Iterator[Tensor]:
        """The indices of the batches of all ranks, step by step: int64 of shape ``(ranks, batch_size)``."""
        ranks = (self._batches(mine, epoch, rank) for rank, mine in enumerate(self.parts(epoch)))
        for together in zip(*ranks, strict=True):
            yield torch.stack(together)

    def parts(self, epoch: int) -> list[Indices]:
        """The samples of every rank in ``epoch``, before they are put in order."""
        return parts(self.labels.numpy(), self.ranks, self.partition, self.seed, epoch)

    def _batches(self, mine: Indices, epoch: int, rank: int) -> Iterator[Tensor]:
        if self.partition.kind != "iid":
            mine = np.random.default_rng((self.seed, epoch, rank)).permutation(mine)
        yield from torch.from_numpy(np.resize(mine, self.steps * self.batch_size)).split(self.batch_size)


def _labels(samples: Samples, partition: Partition) -> Tensor:
    """What ``partition`` goes by: the class of each sample, or its place where it has none."""
    if samples.labels is not None and samples.labels.ndim == 1:
        return samples.labels.cpu()
    if samples.labels is None and partition.kind != "iid":
        raise UserError(
            f"--partition {partition} goes by labels, which this data set does not tell before its samples are loaded: "
            "give it an attribute targets, or take --partition iid"
        )
    if partition.kind == "dirichlet":
        raise UserError(
            f"--partition {partition} divides classes among the ranks, but these samples have a label for each token: "
            "take sorted, which gives each rank a stretch of the text, or iid"
        )
    return torch.arange(len(samples))
