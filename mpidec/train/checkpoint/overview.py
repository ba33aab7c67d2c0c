"""What is in a checkpoint: where the job stood, what each part takes, how far the ranks are apart, what is damaged."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tabulate import tabulate
from torch import Tensor

from mpidec.errors import UserError
from mpidec.train.checkpoint import files, manifest
from mpidec.train.checkpoint.average import Mean
from mpidec.train.checkpoint.layout import MANIFEST, reading, resolve, step_folders

TOLD = ("step", "epoch", "ranks", "algorithm", "compressor", "topology", "time", "mpidec", "format")


def inspect(path: Path) -> dict[str, Any]:
    """What is in the checkpoint that ``path`` leads to, as plain values; all sizes in bytes.

    ``files``: for each rank its ``name`` and ``size``, and what is ``wrong`` with it, empty where it is what was saved.
    ``parts``: the mean size of each part of a rank's state. ``buffers``: of the algorithm, the norm over the ranks.
    ``consensus_distance``: the root mean square, over the ranks, of the norm of x_i minus the average.
    ``others``: the other checkpoints of the run. For one process, which reads what it finds of the ranks' files.

    Raises ``UserError`` where there is no checkpoint.
    """
    folder = resolve(path)
    about = manifest.read(folder)
    mean, names = Mean(), set[str]()
    parts, norms, shapes = dict[str, int](), dict[str, list[float]](), dict[str, list[Any]]()
    with reading(folder):
        others = _others(folder)
    listed = []
    for rank, one in enumerate(about["files"]):
        wrong = ""
        try:
            state = files.read(folder / one["name"], one)
            mean.add(state["model"], rank)
            names |= set(manifest.trained(state))
            for part, size in _parts(state):
                parts[part] = parts.get(part, 0) + size
            for buffer, norm, shape in _buffers(state):
                norms.setdefault(buffer, []).append(norm)
                shapes[buffer] = shape
        except UserError as error:
            wrong = str(error).removeprefix(f"{folder / one['name']} ")
        listed.append({"rank": rank, "name": one["name"], "size": one["size"], "wrong": wrong})
    return {
        "folder": str(folder),
        **{key: about.get(key) for key in TOLD},
        "config": about.get("config"),
        "parameters": about["parameters"],
        "ranks_read": mean.count,
        "consensus_distance": _finite(mean.distance(names)) if mean.count else None,
        "parts": {part: size / mean.count for part, size in parts.items()},
        "buffers": {
            name: {
                "entries": shapes[name][0],
                "dtype": shapes[name][1],
                "norm": {"mean": _finite(sum(n) / len(n)), "min": _finite(min(n)), "max": _finite(max(n))},
            }
            for name, n in norms.items()
        },
        "files": listed,
        "size": sum(one["size"] for one in listed),
        "whole": not any(one["wrong"] for one in listed),
        "others": others,
    }


def show(report: Mapping[str, Any]) -> str:
    """The ``report`` of ``inspect`` as tables."""
    parameters = report["parameters"]
    figures = [(key, report[key]) for key in TOLD if report[key] is not None]
    figures += [("parameters", f"{parameters.get('count', 0):,} of {parameters.get('dtype', '?')}")]
    if report["ranks_read"]:
        figures += [("consensus distance", _read_from(report, _short(report["consensus_distance"])))]
    wrong = sum(bool(one["wrong"]) for one in report["files"])
    whole = "all are what was saved" if not wrong else f"{wrong} of {report['ranks']} are missing or damaged"
    figures += [("files", f"{report['size']:,} bytes, {whole}")]
    tables = [f"{report['folder']}\n{_table(figures)}"]
    if report["parts"]:
        rows = [(part, f"{size:,.0f}") for part, size in report["parts"].items()]
        tables.append(_table(rows, ["part", "bytes of a rank"], ("left", "right")))
    if report["buffers"]:
        buffers = [
            (name, f"{one['entries']:,}", one["dtype"], *(_short(one["norm"][key]) for key in ("mean", "min", "max")))
            for name, one in report["buffers"].items()
        ]
        tables.append(_table(buffers, ["buffer", "entries", "dtype", "norm, mean", "min", "max"]))
    saved = [(one["rank"], one["name"], f"{one['size']:,}", one["wrong"] or "as saved") for one in report["files"]]
    tables.append(_table(saved, ["rank", "file", "bytes", "sha256"], ("right", "left", "right", "left")))
    if report["others"]:
        others = [(one["name"], one["time"] or "", _size(one["size"]), one["state"]) for one in report["others"]]
        tables.append(
            _table(others, ["other checkpoints", "time", "bytes", "files"], ("left", "left", "right", "left"))
        )
    return "\n\n".join(tables)


def _parts(state: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """The parts of a rank's state, with the bytes of their tensors; the optimizer's two by themselves."""
    for name, value in state.items():
        if name == "optimizer" and isinstance(value, Mapping):
            yield "optimizer, local", _bytes(value.get("local"))
            yield "optimizer, algorithm", _bytes(value.get("algorithm"))
        else:
            yield name, _bytes(value)


def _buffers(state: Mapping[str, Any]) -> Iterator[tuple[str, float, list[Any]]]:
    """The algorithm's buffers by name: the norm, and the number of entries with their dtype."""
    optimizer = state.get("optimizer")
    for name, buffer in (optimizer.get("algorithm") or {} if isinstance(optimizer, Mapping) else {}).items():
        tensors = list(_tensors(buffer))
        norm = math.sqrt(sum(float(one.double().square().sum()) for one in tensors))
        dtypes = sorted({str(one.dtype).removeprefix("torch.") for one in tensors})
        yield name, norm, [sum(one.numel() for one in tensors), ", ".join(dtypes)]


def _others(folder: Path) -> list[dict[str, Any]]:
    """The checkpoints beside ``folder``, by step, with what can be told without reading the ranks' files."""
    found = []
    for other in step_folders(folder.resolve().parent):
        if other == folder.resolve():
            continue
        size = time = None
        try:
            about = manifest.read(other)
            time, size = about["time"], sum(one["size"] for one in about["files"])
            lacks = sum(_size_of(other / one["name"]) != one["size"] for one in about["files"])
            state = f"{lacks} of {about['ranks']} are missing or cut off" if lacks else "all there"
        except UserError:
            state = "manifest broken" if (other / MANIFEST).exists() else "never finished"
        found.append({"name": other.name, "time": time, "size": size, "state": state})
    return found


def _size_of(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    for one in value.values() if isinstance(value, Mapping) else value if isinstance(value, (list, tuple)) else ():
        yield from _tensors(one)


def _bytes(value: Any) -> int:
    return sum(one.numel() * one.element_size() for one in _tensors(value))


def _finite(value: float) -> float | None:
    """JSON knows no infinity."""
    return value if math.isfinite(value) else None


def _read_from(report: Mapping[str, Any], text: str) -> str:
    read, ranks = report["ranks_read"], report["ranks"]
    return text if read == ranks else f"{text} over the {read} of {ranks} ranks whose files could be read"


def _short(value: float | None) -> str:
    return "not finite" if value is None else f"{value:.4g}"


def _size(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


def _table(rows: list[Any], headers: list[str] | None = None, align: tuple[str, ...] | None = None) -> str:
    return tabulate(
        rows, headers=headers or (), tablefmt="simple" if headers else "plain", disable_numparse=True, colalign=align
    )
