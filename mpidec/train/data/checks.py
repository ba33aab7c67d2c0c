"""What holds for every data set, wherever it comes from."""

from __future__ import annotations

import math

import torch

from mpidec.errors import UserError
from mpidec.train.data.dataset import Dataset, Samples, Split

MANY = 10_000  # classes; more than that need samples


def checked(dataset: Dataset, name: str) -> Dataset:
    """``dataset`` itself. Raises ``UserError`` for one that nothing can be learnt from, or nothing judged by."""
    for what, samples in (("training", dataset.train), ("test", dataset.test)):
        if len(samples) == 0:
            raise UserError(f"{name} has no {what} samples: it needs one at least")
        if isinstance(samples, Split):
            _refuse_odd_tensors(samples, f"the {what} samples of {name}")
    if dataset.train.sample != dataset.test.sample or dataset.train.tokens != dataset.test.tokens:
        raise UserError(
            f"{name} has training samples of shape {dataset.train.sample} and test samples of shape "
            f"{dataset.test.sample}: they must be alike, in their dtype too"
        )
    labels = dataset.train.labels
    if dataset.classes < 2 or (labels is not None and labels.ndim == 1 and bool((labels == labels[0]).all())):
        raise UserError(f"{name} has one class only, in which there is nothing to learn: it needs two at least")
    if dataset.classes > MANY and dataset.classes > 10 * len(dataset.train):
        raise UserError(
            f"{name} has labels up to {dataset.classes - 1:,} on {len(dataset.train):,} samples, and each number up to "
            "the largest is a class: number the classes 0, 1, 2, ..."
        )
    for what, samples in (("training", dataset.train), ("test", dataset.test)):
        _refuse_strange_labels(samples, dataset.classes, f"the {what} samples of {name}")
    return dataset


def _refuse_odd_tensors(samples: Split, whose: str) -> None:
    inputs, labels = samples.inputs, samples.labels
    if inputs.ndim < 2 or inputs[0].numel() == 0:
        raise UserError(f"{whose} have inputs of shape {tuple(inputs.shape)}: it must be (samples, ...)")
    if labels.ndim not in (1, 2) or labels.dtype.is_floating_point or labels.dtype in (torch.bool, torch.complex64):
        raise UserError(
            f"{whose} have labels of shape {tuple(labels.shape)} and dtype {labels.dtype}: they must be int64, one a "
            "sample, or one for each token of it"
        )
    if len(inputs) != len(labels):
        raise UserError(f"{whose} are {len(inputs)} inputs with {len(labels)} labels: each input needs one")
    if inputs.dtype.is_complex or inputs.dtype == torch.bool:
        raise UserError(f"{whose} are {inputs.dtype}: take floats, uint8 for images, or int64 for tokens")
    # The extremes of what holds NaN are NaN, and no mask as large as the samples is made.
    if inputs.dtype.is_floating_point and not all(math.isfinite(float(one)) for one in inputs.aminmax()):
        raise UserError(f"{whose} hold NaN or infinity, with which nothing can be learnt: remove those samples")


def _refuse_strange_labels(samples: Samples, classes: int, whose: str) -> None:
    labels = samples.labels
    if labels is None:
        return
    low, high = (int(one) for one in labels.aminmax())
    if low < 0 or high >= classes:
        raise UserError(
            f"{whose} have labels from {low} to {high}, but the {classes} classes are numbered 0 .. {classes - 1}"
        )
