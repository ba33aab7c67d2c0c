"""The averaged model of a checkpoint, from the files of all ranks, one after the other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mpidec.errors import UserError
from mpidec.train.checkpoint import files, manifest
from mpidec.train.checkpoint.layout import resolve


def average(path: Path) -> dict[str, Tensor]:
    """The mean over the ranks of the model in the checkpoint that ``path`` leads to, as a plain state dict on the CPU.

    Floating-point numbers are averaged in float64 and keep their dtype; what is the same on all ranks stays as it is;
    integers, such as BatchNorm's counters, are rank 0's. For one process, which needs the files of all ranks; raises
    ``UserError`` where one is missing, or is not what was saved.
    """
    folder = resolve(path)
    about = manifest.read(folder)
    missing = [one["name"] for one in about["files"] if not (folder / one["name"]).exists()]
    if missing:
        raise UserError(
            f"{folder} lacks {', '.join(missing)}: the average needs the files of all {about['ranks']} ranks, so copy "
            "those of the other hosts here"
        )
    mean = Mean()
    for rank, one in enumerate(about["files"]):
        mean.add(files.read(folder / one["name"], one)["model"], rank)
    return mean.model()


class Mean:
    """A mean of models that are added one by one, and how far they lie from it. Holds three models, not all."""

    def __init__(self) -> None:
        self.count = 0
        self._first: dict[str, Any] = {}
        self._total: dict[str, Tensor] = {}
        self._differs: set[str] = set()
        self._squared: dict[str, float] = {}

    @torch.no_grad()
    def add(self, model: Mapping[str, Any], rank: int) -> None:
        """Take in the model of ``rank``. Raises ``UserError`` where it is not of the form of the first one."""
        if self.count == 0:
            self._first = dict(model)
            self._total = {name: _wide(values) for name, values in model.items() if _averaged(values)}
            self._squared = dict.fromkeys(self._total, 0.0)
            self.count = 1
            return
        self._refuse_other(model, rank)
        self.count += 1
        for name, total in self._total.items():
            if not torch.equal(model[name], self._first[name]):
                self._differs.add(name)
            values = _wide(model[name])
            total += values
            self._squared[name] += float((values - self._first[name]).abs().square().sum())

    def model(self) -> dict[str, Any]:
        """The mean, with every entry in the dtype that it had."""
        mean = dict(self._first)
        for name in self._differs:
            mean[name] = (self._total[name] / self.count).to(self._first[name].dtype)
        # A view of a flat vector would take all of it into every file.
        return {name: values.clone() if isinstance(values, Tensor) else values for name, values in mean.items()}

    def distance(self, names: Iterable[str]) -> float:
        """The root mean square, over the models, of the norm of x_i minus the mean, of the entries ``names``."""
        squared = 0.0
        for name in set(names) & self._differs:
            # Distances from the first model lose no digits, where squares of the parameters would.
            shift = self._total[name] / self.count - self._first[name]
            squared += self._squared[name] / self.count - float(shift.abs().square().sum())
        return float(max(squared, 0.0) ** 0.5) if squared == squared else squared

    def _refuse_other(self, model: Mapping[str, Any], rank: int) -> None:
        for name in self._first | dict(model):
            here, there = (_form(one[name]) if name in one else "missing" for one in (model, self._first))
            if here != there:
                raise UserError(
                    f"the ranks hold different models: {name!r} is {here} on rank {rank}, and {there} on the first one"
                )


def _averaged(values: Any) -> bool:
    return isinstance(values, Tensor) and (values.is_floating_point() or values.is_complex())


def _wide(values: Tensor) -> Tensor:
    return values.to(torch.complex128 if values.is_complex() else torch.float64, copy=True)


def _form(values: Any) -> str:
    return f"{list(values.shape)} of {values.dtype}" if isinstance(values, Tensor) else type(values).__name__
