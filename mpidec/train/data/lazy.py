"""Samples that are loaded batch by batch, by worker processes: what does not fit into memory."""

from __future__ import annotations

import itertools
import pickle
import warnings
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, default_collate

from mpidec.errors import UserError
from mpidec.train.data.dataset import Batch, Normalize, is_tokens, prepared
from mpidec.train.data.draws import seeded
from mpidec.train.foreign import told

Order = list[tuple[list[int], int | None]]  # the samples of each batch, and the seed of its draws


class LazySplit:
    """Samples of any map-style ``torch.utils.data.Dataset`` of pairs (input tensor, int label).

    ``labels``: int64 of shape ``(samples,)``, or ``None`` where they are not known before. ``workers``: processes that
    load, which live as long as this object; 0: this one. They are started as ``multiprocessing`` starts processes, by
    fork or anew, get nothing but the pickled ``source``, and never touch MPI. ``name`` is what a sentence calls it.

    Raises ``UserError`` where the first sample is no such pair.
    """

    def __init__(
        self,
        source: Any,
        labels: Tensor | None,
        name: str,
        classes: int,
        workers: int = 0,
        normalize: Normalize | None = None,
        device: torch.device | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.source, self.labels, self.name, self.classes = source, labels, name, classes
        self._workers, self._normalize, self._dtype = workers, normalize, dtype
        self._device = device or torch.device("cpu")
        self._order = _Sampler()
        self._loader: DataLoader[Any] | None = None
        self.first = _first(source, name)
        self.sample, self.tokens = tuple(self.first.shape), is_tokens(self.first)

    def __len__(self) -> int:
        return len(self.source)

    def to(self, device: torch.device, dtype: torch.dtype = torch.float32) -> LazySplit:
        """See ``Samples.to``."""
        normalize, labels = self._normalize, self.labels
        return LazySplit(self.source, labels, self.name, self.classes, self._workers, normalize, device, dtype)

    def batches(self, indices: Iterable[Tensor], seeds: Iterable[int] | None = None) -> Iterator[Batch]:
        """See ``Samples.batches``; ask for one sequence of batches at a time.

        Raises ``UserError`` for a sample that cannot be loaded, or whose label is no class.
        """
        each = itertools.repeat(None) if seeds is None else seeds
        self._order.batches = [(one.tolist(), seed) for one, seed in zip(indices, each, strict=False)]
        for found in self._watched(self._loaded()):
            if isinstance(found, str):
                raise UserError(found)
            inputs, labels = (one.to(self._device, non_blocking=True) for one in found)
            yield prepared(inputs, self._dtype, self._normalize), labels

    def _watched(self, loaded: Iterator[Any]) -> Iterator[Any]:
        """What is ``loaded``; a worker process that ends in the middle is a mistake of what it loads."""
        try:
            yield from loaded
        except (RuntimeError, ConnectionError, EOFError) as error:
            # Which of them comes, depends on whether the pipe or the signal is noticed first.
            if isinstance(error, RuntimeError) and "DataLoader worker" not in str(error):
                raise
            raise UserError(
                f"a worker process that loads {self.name} has ended ({told(error)}): look at its data and memory, or "
                "take --workers 0"
            ) from error

    def _loaded(self) -> Iterator[Any]:
        if self._loader is None:
            self._loader = DataLoader(
                _Batches(self.source, self.name, self.classes),
                batch_size=None,
                sampler=self._order,
                num_workers=self._workers,
                persistent_workers=self._workers > 0,
                pin_memory=self._device.type == "cuda",
                collate_fn=_as_it_is,
                # Of its own: the loader would draw from the generator that dropout draws from.
                generator=torch.Generator().manual_seed(0),
            )
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="Got pickle error")
                loaded: Iterator[Any] = iter(self._loader)
            return loaded
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise UserError(
                f"{self.name} cannot be sent to worker processes ({told(error)}): use no lambda in it and define it "
                "at the top of a module, or take --workers 0"
            ) from error


class _Sampler:
    """What the loader goes through; it keeps its workers, while the batches change with each epoch."""

    def __init__(self) -> None:
        self.batches: Order = []

    def __iter__(self) -> Iterator[tuple[list[int], int | None]]:
        return iter(self.batches)

    def __len__(self) -> int:
        return len(self.batches)


class _Batches(Dataset[Any]):
    """Whole batches of ``source``, or the sentence that says why one cannot be had: a worker's errors lose theirs."""

    def __init__(self, source: Any, name: str, classes: int) -> None:
        self.source, self.name, self.classes = source, name, classes

    def __getitem__(self, asked: tuple[list[int], int | None]) -> Batch | str:
        indices, seed = asked
        try:
            with nullcontext() if seed is None else seeded(seed):
                inputs, labels = _collated([self._pair(index) for index in indices], self.name)
        except UserError as error:
            return str(error)
        if labels.min() < 0 or labels.max() >= self.classes:
            bad = indices[int(((labels < 0) | (labels >= self.classes)).nonzero()[0])]
            return f"sample {bad} of {self.name} has a label that is not in 0 .. {self.classes - 1}, its classes"
        return inputs, labels

    def _pair(self, index: int) -> Any:
        return _pair(self.source, index, self.name)


def _pair(source: Any, index: int, name: str) -> Any:
    try:
        return source[index]
    except UserError:
        raise
    except Exception as error:  # whatever a user's own code raises
        raise UserError(f"sample {index} of {name} cannot be loaded ({told(error)})") from error


def _collated(pairs: list[Any], name: str) -> Batch:
    """The batch of all ``pairs``."""
    try:
        inputs, labels = default_collate(pairs)
        if not (isinstance(inputs, Tensor) and isinstance(labels, Tensor)):
            raise TypeError(f"got {type(inputs).__name__} and {type(labels).__name__}")
    except Exception as error:  # torch raises of many kinds
        raise UserError(
            f"the samples of {name} must be pairs of an input tensor, of one shape, and an int label ({told(error)})"
        ) from error
    if labels.ndim != 1 or labels.dtype.is_floating_point or labels.dtype.is_complex or labels.dtype == torch.bool:
        raise UserError(
            f"the labels of {name} must be integers, one a sample: got {labels.dtype}, shape {tuple(labels.shape[1:])}"
        )
    return inputs, labels.long()


def _first(source: Any, name: str) -> Tensor:
    """The input of the first sample."""
    with seeded(0):
        inputs, _ = _collated([_pair(source, 0, name)], name)
    return inputs[0]


def _as_it_is(found: Any) -> Any:
    return found
