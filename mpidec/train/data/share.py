"""A data set on its way from rank 0 to all others."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from mpidec.errors import UserError
from mpidec.train.data.dataset import Dataset, Normalize, Split
from mpidec.transport.base import Transport


class Outline(NamedTuple):
    """All of a data set but its samples. ``tensors``: shapes and dtypes of inputs and labels, where in memory.

    ``normalize``: of the training and the test samples.
    """

    sizes: tuple[int, int]
    sample: tuple[int, ...]
    classes: int
    tensors: list[tuple[tuple[int, ...], torch.dtype]] | None
    normalize: list[Normalize | None]

    @classmethod
    def of(cls, dataset: Dataset) -> Outline:
        """Of what rank 0 has read."""
        splits = [split for split in (dataset.train, dataset.test) if isinstance(split, Split)]
        forms = [(tuple(tensor.shape), tensor.dtype) for tensor in _tensors(splits)]
        sizes = len(dataset.train), len(dataset.test)
        in_memory = forms if len(splits) == 2 else None
        return cls(sizes, dataset.sample, dataset.classes, in_memory, [split.normalize for split in splits])

    def refuse_other(self, dataset: Dataset, name: str, rank: int) -> None:
        """Raise ``UserError`` where ``rank`` has opened another data set than rank 0."""
        for what, here, there in (
            ("training samples", len(dataset.train), self.sizes[0]),
            ("test samples", len(dataset.test), self.sizes[1]),
            ("as the shape of a sample", dataset.sample, self.sample),
            ("classes", dataset.classes, self.classes),
        ):
            if here != there:
                raise UserError(
                    f"{name} is not the same on every rank: rank {rank} finds {here} {what}, rank 0 {there}; "
                    "each host must have the same files"
                )


def sent(dataset: Dataset, transport: Transport) -> Dataset:
    """Rank 0's part: its data set, whose tensors go to all others as bytes, since pickles end at 2 GiB."""
    for tensor in _tensors([split for split in (dataset.train, dataset.test) if isinstance(split, Split)]):
        transport.broadcast(tensor)
    return dataset


def received(outline: Outline, transport: Transport) -> Dataset:
    """The part of all others: what rank 0 sends."""
    assert outline.tensors is not None, "in memory"
    tensors = [torch.empty(shape, dtype=dtype) for shape, dtype in outline.tensors]
    for tensor in tensors:
        transport.broadcast(tensor)
    train, test = (Split(tensors[2 * k], tensors[2 * k + 1], outline.normalize[k]) for k in (0, 1))
    return Dataset(train, test, outline.classes)


def _tensors(splits: list[Split]) -> list[Tensor]:
    return [tensor for split in splits for tensor in (split.inputs, split.labels)]
