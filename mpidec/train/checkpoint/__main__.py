"""``python -m mpidec.train.checkpoint COMMAND``: options and mistakes first, then torch."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from mpidec.cli import any_of, fail, parse, refuse_ranks, run
from mpidec.errors import UserError
from mpidec.folder import replacing
from mpidec.train.checkpoint import manifest
from mpidec.train.checkpoint.layout import resolve

Where = Annotated[
    Path,
    tyro.conf.Positional,
    tyro.conf.arg(metavar="DIR", help="a run's folder, for its latest checkpoint, or the folder of one checkpoint"),
]


@dataclass(frozen=True)
class Inspect:
    """Show what is in a checkpoint. Ends with 1 where a rank's file is missing, or is not what was saved."""

    folder: Where
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """print it as JSON"""


@dataclass(frozen=True)
class Average:
    """Write the mean over the ranks of the models in a checkpoint, as a plain state dict."""

    folder: Where
    out: Annotated[Path, tyro.conf.arg(metavar="FILE.pt")]
    """file of the averaged model; must not exist"""


COMMANDS = {"inspect": Inspect, "average": Average}


def main() -> None:
    """Run the command of the command line."""
    chosen: Inspect | Average = parse(any_of(COMMANDS), "python -m mpidec.train.checkpoint")
    refuse_ranks("one process reads the files of all ranks")
    try:
        folder = resolve(chosen.folder)
        manifest.read(folder)  # mistakes first: torch takes a second
        if isinstance(chosen, Inspect):
            _inspect(folder, chosen.json)
        else:
            _average(folder, chosen.out)
    except UserError as error:
        fail(str(error))


def _inspect(folder: Path, as_json: bool) -> None:
    from mpidec.train.checkpoint.overview import inspect, show

    report = inspect(folder)
    print(json.dumps(report, indent=2, allow_nan=False) if as_json else show(report))
    if not report["whole"]:
        raise SystemExit(1)


def _average(folder: Path, out: Path) -> None:
    _refuse_present(out)
    if not out.parent.is_dir():
        raise UserError(f"{out} cannot be written: {out.parent} is no folder, make it first or choose another --out")

    from torch import Tensor

    from mpidec.train.checkpoint.average import average
    from mpidec.train.checkpoint.files import dump

    model = average(folder)
    try:
        with replacing(out) as file:
            dump(model, file)
            _refuse_present(out)
    except OSError as error:
        raise UserError(f"{out} cannot be written: {error.strerror}") from None
    tensors = [values for values in model.values() if isinstance(values, Tensor)]
    print(
        f"{out}: the averaged model of {folder}, {sum(one.numel() for one in tensors):,} entries in {len(tensors)} "
        f"tensors, {os.path.getsize(out):,} bytes\n"
        f'load it with model.load_state_dict(torch.load("{out}", weights_only=True))'
    )


def _refuse_present(out: Path) -> None:
    if out.exists() or out.is_symlink():
        raise UserError(f"{out} exists already, and nothing is overwritten: choose another --out")


if __name__ == "__main__":
    run(main)
