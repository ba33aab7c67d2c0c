"""Data of a user's own: ``package.module:factory`` returns training and test samples."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import IterableDataset, Subset, TensorDataset

from mpidec.errors import UserError
from mpidec.train.data.dataset import Dataset, Samples, Split
from mpidec.train.data.draws import seeded
from mpidec.train.data.lazy import LazySplit
from mpidec.train.data.source import Source
from mpidec.train.foreign import call

WANTED = "a pair (train, test) of torch data sets, or a mpidec.train.data.dataset.Dataset"


def load(source: Source) -> Dataset:
    """What the factory returns, as a data set; its random draws are the same on every rank.

    In memory are a ``TensorDataset`` of inputs and labels, and a ``Subset`` of one. Of any other map-style data set of
    pairs (input tensor, int label) samples are loaded batch by batch. Raises ``UserError`` for everything else.
    """
    name = source.name
    with seeded(0):
        made = call("--data", name)
    if isinstance(made, Dataset):
        return made
    if not (isinstance(made, (tuple, list)) and len(made) == 2):
        raise UserError(f"--data {name} returns {_kind(made)}: it must return {WANTED}")
    for one in made:
        if isinstance(one, IterableDataset) or not (hasattr(one, "__getitem__") and hasattr(one, "__len__")):
            raise UserError(
                f"--data {name} returns a pair with {_kind(one)}: both must be map-style torch data sets, with "
                "__getitem__ and __len__"
            )
    # Both in memory, or both not, so that the ranks share them alike.
    tensors = [_tensors(one, name) for one in made]
    if None not in tensors:
        splits: list[Samples] = [Split(*pair) for pair in tensors if pair is not None]
        classes = _classes(made[0], splits[0].labels, name)
        return Dataset(splits[0], splits[1], classes)
    for one, what in zip(made, ("training", "test"), strict=True):
        if len(one) == 0:
            raise UserError(f"{name} has no {what} samples: it needs one at least")
    labels = [_labels(one, name) for one in made]
    classes = _classes(made[0], labels[0], name)
    lazy = [LazySplit(one, its, name, classes, source.workers) for one, its in zip(made, labels, strict=True)]
    return Dataset(lazy[0], lazy[1], classes)


def _tensors(samples: Any, name: str) -> tuple[Tensor, Tensor] | None:
    """Inputs and labels of samples that are in memory."""
    if isinstance(samples, Subset):
        whole, indices = _tensors(samples.dataset, name), torch.as_tensor(samples.indices, dtype=torch.int64)
        return None if whole is None else (whole[0][indices], whole[1][indices])
    if not isinstance(samples, TensorDataset):
        return None
    if len(samples.tensors) != 2:
        raise UserError(f"--data {name} returns a TensorDataset of {len(samples.tensors)} tensors: inputs and labels")
    inputs, labels = samples.tensors
    return inputs.detach().cpu(), labels.detach().cpu()


def _labels(samples: Any, name: str) -> Tensor | None:
    """The class of each sample, as torchvision's data sets tell it: ``targets``."""
    if isinstance(samples, Subset):
        whole = _labels(samples.dataset, name)
        return None if whole is None else whole[torch.as_tensor(samples.indices, dtype=torch.int64)]
    if isinstance(samples, TensorDataset):
        return samples.tensors[1].detach().cpu().long()
    if not hasattr(samples, "targets"):
        return None
    try:
        labels = torch.from_numpy(np.asarray(samples.targets))
    except (TypeError, ValueError):
        labels = torch.empty(0, 0)
    if labels.shape != (len(samples),) or labels.dtype.is_floating_point or labels.dtype == torch.bool:
        raise UserError(f"the attribute targets of --data {name} must be {len(samples)} integers, one for each sample")
    return labels.long()


def _classes(samples: Any, labels: Tensor | None, name: str) -> int:
    """How many there are: what the samples say themselves, else the largest label and one."""
    whole = samples
    while isinstance(whole, Subset):
        whole = whole.dataset
    said = getattr(whole, "classes", None)
    if isinstance(said, int) and not isinstance(said, bool):
        return said
    if said is not None and hasattr(said, "__len__"):
        return len(said)
    if labels is None:
        raise UserError(
            f"--data {name} does not tell its number of classes: give its training samples an attribute classes (their "
            "number, or their names) or targets (the label of each sample)"
        )
    return int(labels.max()) + 1 if labels.numel() else 0


def _kind(found: Any) -> str:
    if isinstance(found, (tuple, list)):
        return f"{type(found).__name__} of {len(found)}"
    return type(found).__name__
