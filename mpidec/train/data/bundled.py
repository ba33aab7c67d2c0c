"""Data that comes with scikit-learn, so that nothing needs to be downloaded."""

from __future__ import annotations

import numpy as np
import torch

from mpidec.train.data.dataset import Dataset, Split
from mpidec.train.data.source import Source


def digits(source: Source | None = None) -> Dataset:
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
