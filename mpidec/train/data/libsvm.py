"""Files in the format of LIBSVM: lines of LABEL INDEX:VALUE .."""

from __future__ import annotations

import os
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mpidec.errors import UserError
from mpidec.train.data.dataset import Dataset, Split
from mpidec.train.data.source import Source

HELD_OUT = 5  # one sample of so many is for testing, where there is no file of test samples
LARGEST = 2**33  # bytes of dense features


def load(source: Source) -> Dataset:
    """Features as dense float32, labels numbered from 0 in their order.

    Test samples are those of ``FILE.t``, where it lies beside ``FILE``, else a fifth, the same in every run. Raises
    ``UserError`` for files that cannot be read, that are too large as dense numbers, or whose test samples have labels
    that no training sample has.
    """
    path = source.file
    beside = Path(f"{path}.t")
    if not path.exists():
        raise UserError(f"--data {source.name}: there is no such file")
    both = read([path, beside] if beside.exists() else [path])
    size = 4 * sum(features.shape[0] for features, _ in both) * both[0][0].shape[1]
    if size > LARGEST:
        raise UserError(
            f"{path} has {both[0][0].shape[1]:,} features, which take {size / 2**30:,.0f} GiB as dense numbers, where "
            f"{LARGEST / 2**30:.0f} GiB are possible: take fewer samples or features"
        )
    with np.errstate(over="ignore"):  # what becomes infinite is found out by the checks for all data
        inputs = [torch.from_numpy(features.astype(np.float32).toarray()) for features, _ in both]
    classes = np.unique(both[0][1])
    for _, values in both[1:]:
        if strange := sorted(set(values) - set(classes)):
            raise UserError(f"{beside} has the label {strange[0]:g}, which no sample of {path} has")
    labels = [torch.from_numpy(np.searchsorted(classes, values)) for _, values in both]
    if len(both) == 1:
        order = torch.from_numpy(np.random.default_rng(0).permutation(len(labels[0])))
        held_out = len(order) // HELD_OUT
        inputs, labels = ([whole[order[held_out:]], whole[order[:held_out]]] for (whole,) in (inputs, labels))
    return Dataset(Split(inputs[0], labels[0]), Split(inputs[1], labels[1]), len(classes))


def read(paths: Sequence[str | os.PathLike[str]]) -> list[tuple[Any, Any]]:
    """The samples of each file, which may be compressed (.gz, .bz2): a CSR matrix, and the labels as they stand.

    All matrices have the same columns. Raises ``UserError`` for files that cannot be read, for one without samples or
    features, and for values that are not finite.
    """
    from sklearn.datasets import load_svmlight_files

    named = " or ".join(str(path) for path in paths)
    try:
        loaded = load_svmlight_files([str(path) for path in paths])
    except (OSError, EOFError, ValueError, OverflowError, zlib.error) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise UserError(
            f"{named} cannot be read as a LIBSVM file, lines of LABEL INDEX:VALUE ..: {reason.rstrip('.')}"
        ) from None
    both = list(zip(loaded[::2], loaded[1::2], strict=True))
    for path, (features, values) in zip(paths, both, strict=True):
        if not len(values) or not features.nnz:
            raise UserError(
                f"{path} holds no {'features' if len(values) else 'samples'}: lines are LABEL INDEX:VALUE .."
            )
        if not (np.isfinite(features.data).all() and np.isfinite(values).all()):
            raise UserError(f"{path} holds NaN or infinity, with which nothing can be learnt: remove those samples")
    return both
