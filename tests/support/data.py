"""Data sets of a user's own, as ``support.data:NAME`` and as pickled for worker processes."""

from __future__ import annotations

import os
import random
import signal
import sys
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, IterableDataset, Subset, TensorDataset, random_split

from mpidec.train.data import dataset as own


class Numbers(Dataset[Any]):
    """Sample k is a vector of three entries k, of the class k % ``classes``."""

    def __init__(self, samples: int, classes: int = 3, offset: int = 0) -> None:
        self.samples, self.offset = samples, offset
        self.targets = [(k + offset) % classes for k in range(samples)]

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return torch.full((3,), float(index + self.offset)), self.targets[index]


class Unlabelled(Numbers):
    """Labels are known only with the samples."""

    classes = ("a", "b", "c")

    def __init__(self, samples: int, offset: int = 0) -> None:
        super().__init__(samples, 3, offset)
        self.hidden = self.targets
        del self.targets

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return torch.full((3,), float(index + self.offset)), self.hidden[index]


class Noise(Dataset[Any]):
    """Inputs that are drawn anew each time, from all three generators."""

    classes = 2

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return torch.cat([torch.rand(1), torch.tensor([np.random.rand(), random.random()]).float()]), index % 2


class Dying(Numbers):
    """The process that loads the seventh sample is killed, as by a system that is out of memory."""

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        if index == 6:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(index)


def leaving() -> None:
    sys.exit(0)


class Telling(Numbers):
    """The label tells whether mpi4py has been imported in the process that loads, and the input tells which it is."""

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        import os

        return torch.tensor([float(os.getpid())]), int("mpi4py.MPI" in sys.modules)


class Broken(Numbers):
    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        if index == 5:
            raise OSError("the disk is gone\nand more")
        return super().__getitem__(index)


class Stranger(Unlabelled):
    """One label is no class."""

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return torch.zeros(3), 3 if index == 4 else 0


class Stream(IterableDataset[Any]):
    def __len__(self) -> int:
        return 3

    def __iter__(self) -> Any:
        return iter(())


def tensors(samples: int = 12, classes: int = 3) -> TensorDataset:
    return TensorDataset(torch.arange(samples * 2.0).view(samples, 2), torch.arange(samples) % classes)


def changed(inputs: Any = None, labels: Any = None) -> TensorDataset:
    """``tensors``, with other inputs or labels."""
    whole = tensors()
    return TensorDataset(
        whole.tensors[0] if inputs is None else inputs(whole.tensors[0].clone()),
        whole.tensors[1] if labels is None else labels(whole.tensors[1].clone()),
    )


def in_memory() -> Any:
    return tensors(), tensors(6)


def lazy() -> Any:
    return Numbers(12), Numbers(6, offset=100)


def unlabelled() -> Any:
    return Unlabelled(12), Unlabelled(6)


def halves() -> Any:
    return random_split(tensors(20), [15, 5])


def lazy_halves() -> Any:
    return random_split(Numbers(20), [15, 5])


def unlabelled_halves() -> Any:
    return random_split(Unlabelled(20), [15, 5])


def own_dataset() -> Any:
    return own.Dataset(own.Split(*tensors().tensors), own.Split(*tensors(6).tensors), 4)


def one_of_each() -> Any:
    return tensors(12), Subset(Pairs(6), [0, 1, 2])


class Pairs(Dataset[Any]):
    classes = 3

    def __init__(self, samples: int) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return torch.zeros(2), index % 3


def grows() -> Any:
    """A data set that is another one in each process."""
    import os

    return Numbers(10 + os.getpid() % 1000), Numbers(6)


def raising() -> Any:
    raise KeyError("no\nway")


def net(sample: tuple[int, ...], classes: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.BatchNorm1d(int(np.prod(sample))), nn.Linear(int(np.prod(sample)), classes))


class Counting(nn.Linear):
    """Counts its calls, and keeps in mind which of them were in training."""

    def __init__(self, inside: int, outside: int) -> None:
        super().__init__(inside, outside)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.modes: list[bool] = []

    def forward(self, inputs: Tensor) -> Tensor:
        self.calls += 1
        self.modes.append(self.training)
        return super().forward(inputs)


def counting_net(sample: tuple[int, ...], classes: int) -> nn.Module:
    return Counting(sample[0], classes)


def wrong_net(sample: tuple[int, ...], classes: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(int(np.prod(sample)), classes + 1))


def failing_net(sample: tuple[int, ...], classes: int) -> nn.Module:
    return nn.Linear(7, classes)


def no_net(sample: tuple[int, ...], classes: int) -> Any:
    return lambda inputs: inputs


def empty_net(sample: tuple[int, ...], classes: int) -> nn.Module:
    return nn.Flatten()


def pair_net(sample: tuple[int, ...], classes: int) -> nn.Module:
    return nn.LSTM(sample[0], classes)


NUMBER = 3
