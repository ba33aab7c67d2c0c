"""What a checkpoint says of itself, in ``manifest.json``; importable without torch."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from mpidec.errors import UserError
from mpidec.train.checkpoint.layout import MANIFEST, RANK, finished, rank_name, step_name
from mpidec.version import __version__

FORMAT = 1
LARGEST = 2**26  # bytes; the files of 100,000 ranks take 20 MB
DIGEST = re.compile(r"[0-9a-f]{64}", re.ASCII)
TYPES = {"step": int, "ranks": int, "time": str, "mpidec": str, "parameters": dict, "files": list}


class BrokenError(UserError):
    """This manifest is damaged; another checkpoint may be sound."""


def complete(given: Mapping[str, Any], files: Sequence[dict[str, Any]], parameters: dict[str, Any]) -> dict[str, Any]:
    """What the job says, ``given``, with what the store adds."""
    origin = {"format": FORMAT, "mpidec": __version__}
    own = {
        "ranks": len(files),
        "time": datetime.now(timezone.utc).isoformat(timespec="microseconds"),
        "parameters": parameters,
        "files": list(files),
    }
    return {**origin, **given, **origin, **own}


def text_of(manifest: Mapping[str, Any]) -> str:
    """As JSON; paths and the like become strings."""
    return json.dumps(manifest, indent=2, default=str, allow_nan=False) + "\n"


def read(folder: Path) -> dict[str, Any]:
    """The manifest of the checkpoint ``folder``, with every name in it checked.

    ``files``: for each rank its ``name``, ``size`` in bytes, and ``sha256``. Raises ``BrokenError`` where it is missing
    or damaged, and ``UserError`` where a later mpidec wrote it.
    """
    path = folder / MANIFEST
    try:
        with open(path, "rb") as file:
            content = json.loads(file.read(LARGEST).decode())
    except FileNotFoundError:
        raise BrokenError(f"{folder} has no {MANIFEST}, so it was never finished") from None
    except OSError as error:
        raise BrokenError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise BrokenError(f"{path} is broken: it is no JSON") from None
    version = content.get("format") if isinstance(content, dict) else None
    if isinstance(version, int) and version > FORMAT:
        raise UserError(
            f"{folder} has format {version}, by mpidec {content.get('mpidec')!s:.20}, and mpidec {__version__} reads "
            f"up to {FORMAT}: update mpidec"
        )
    if wrong := _wrong(content, folder.resolve().name):
        raise BrokenError(f"{path} is broken: {wrong}")
    result: dict[str, Any] = content
    return result


def generation_of(manifest: Mapping[str, Any]) -> int:
    """How often this step had been saved before."""
    found = RANK.fullmatch(manifest["files"][0]["name"])
    return int(found[2] or 0) if found else 0


def readable(checkpoints: Path) -> dict[Path, dict[str, Any]]:
    """The manifests of all checkpoints there that have a sound one, in the order in which they were written."""
    found = {}
    for folder in finished(checkpoints):
        try:
            found[folder] = read(folder)
        except UserError:
            continue
    return dict(sorted(found.items(), key=lambda item: str(item[1]["time"])))


def parameters_of(state: Mapping[str, Any]) -> dict[str, Any]:
    """The ``count`` and ``dtype`` of the trained parameters of a rank's state, and a ``digest`` of names and shapes."""
    named = trained(state)
    shapes = [(name, list(values.shape), str(values.dtype)) for name, values in named.items()]
    return {
        "count": sum(values.numel() for values in named.values()),
        "dtype": ", ".join(sorted({str(values.dtype).removeprefix("torch.") for values in named.values()})),
        "digest": hashlib.sha256(json.dumps(shapes).encode()).hexdigest(),
    }


def trained(state: Mapping[str, Any]) -> dict[str, Any]:
    """The trained parameters in the model of a rank's state: those that its optimizer knows, in the optimizer's order.

    Without an optimizer, all floating-point numbers.
    """
    model, shapes = state["model"], (state.get("optimizer") or {}).get("shapes")
    if shapes:
        return {name: model[name] for name in shapes if name in model}
    return {name: v for name, v in model.items() if hasattr(v, "dtype") and v.dtype.is_floating_point}


def _wrong(content: Any, folder: str) -> str:
    """What is wrong with a manifest of this format, in the folder of that name; empty where it is sound."""
    if not isinstance(content, dict):
        return "it holds no mapping"
    if content.get("format") != FORMAT or isinstance(content.get("format"), bool):
        return "it has no format version"
    for name, kind in TYPES.items():
        if not isinstance(content.get(name), kind) or isinstance(content[name], bool):
            return f"{name!r} is missing or of another type"
    if folder.startswith("step-") and folder != step_name(content["step"]):
        return f"it is of step {content['step']}"
    count, dtype = (content["parameters"].get(name) for name in ("count", "dtype"))
    if type(count) is not int or not isinstance(dtype, str):
        return "the parameters have no count or no dtype"
    files = content["files"]
    if not files or len(files) != content["ranks"]:
        return f"it lists {len(files)} files for {content['ranks']} ranks"
    for rank, one in enumerate(files):
        if not isinstance(one, dict) or not RANK.fullmatch(str(one.get("name"))):
            return f"the file of rank {rank} has no sound name"
        if one["name"] != rank_name(rank, generation_of(content)):
            return f"the file of rank {rank} is called {one['name']}"
        if type(one.get("size")) is not int or not isinstance(one.get("sha256"), str):
            return f"the file of rank {rank} has no size or no digest"
        if not DIGEST.fullmatch(one["sha256"]):
            return f"the digest of the file of rank {rank} is none"
    return ""
