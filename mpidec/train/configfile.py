"""Options from a YAML file, as flags that the command line overrules."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from itertools import zip_longest
from pathlib import Path
from typing import Any

from mpidec import compress, optim
from mpidec.errors import UserError
from mpidec.names import canonical, unknown
from mpidec.train.config import Config
from mpidec.train.options.step import GENTLE, MOMENTUM
from mpidec.train.yamlfile import read


def expand(arguments: list[str]) -> list[str]:
    """The ``arguments`` with the content of their ``--config`` file put in front, as flags that later ones overrule.

    Where a flag chooses another algorithm or compressor, what the file says for its own is left out. Raises
    ``UserError`` for a file that cannot be read, is no YAML mapping, or names options that do not exist.
    """
    path = _given(arguments, "config") or _resumed(arguments)
    if path is None:
        return arguments
    types = {field.name: field.type for field in dataclasses.fields(Config) if field.name != "config"}
    options: dict[str, Any] = {}
    for key, value in read(path).items():
        name = str(key).replace("-", "_")
        if name not in types:
            raise UserError(f"{path}: {unknown('option', str(key), sorted(types))}")
        if not isinstance(value, (bool, int, float, str, type(None))):
            raise UserError(f"{path}: {name} must be a single value: got {value!r}")
        if value is not None:
            options[name] = value
    for name in _overruled(options, arguments):
        del options[name]
    flags: list[str] = []
    for name, value in options.items():
        flag = name.replace("_", "-")
        if types[name] == "bool" and isinstance(value, bool):
            flags.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            flags.append(f"--{flag}={value}")
    return flags + arguments


def _given(arguments: list[str], name: str) -> str | None:
    """The value of the option ``name`` on the command line, the last one where there are several."""
    value = None
    for argument, following in zip_longest(arguments, arguments[1:]):
        if argument == f"--{name}":
            value = following
        elif argument.startswith(f"--{name}="):
            value = argument.split("=", 1)[1]
    return value


def _resumed(arguments: list[str]) -> str | None:
    """The options of the run that ``--resume DIR`` goes on with, where there is one."""
    folder = _given(arguments, "resume")
    if folder is None or folder == "auto":
        return None
    here = Path(folder).resolve()
    places = (here, here.parent, here.parent.parent)  # a run, its checkpoints, or one of them
    found = next((place / "config.yaml" for place in places if (place / "config.yaml").exists()), None)
    if found is None and (here / "checkpoints").is_dir():
        raise UserError(f"{folder} has checkpoints, but no config.yaml with the options of the run: put it back")
    return str(found) if found else None


def _overruled(options: dict[str, Any], arguments: list[str]) -> set[str]:
    """The options of the file that lose their meaning by an algorithm or compressor chosen on the command line.

    A learning rate or a contraction that the file's algorithm has by default counts as not chosen.
    """
    lost: set[str] = set()
    before = optim.entry(canonical("algorithm", options.get("algorithm", Config.algorithm), optim.known()))
    chosen, given = _given(arguments, "algorithm"), _given(arguments, "compressor")
    if chosen is not None:
        name = canonical("algorithm", chosen, optim.known())
        entry = optim.entry(name)
        lost |= _not_of(options, {one: e.options for one, e in optim.ALGORITHMS.items()}, entry.options)
        if entry is not before:
            lost |= {"algorithm_options"} | ({"lr"} if options.get("lr") == before.lr else set())
        present = options.get("compressor")
        if (present in compress.COMPRESSORS and present not in entry.compressors) or not entry.compressors:
            lost |= {"compressor"}
    if given is not None or "compressor" in lost:
        own = compress.OPTIONS.get(canonical("compressor", given, compress.known()), {}) if given else {}
        lost |= _not_of(options, compress.OPTIONS, own) | {"compressor_options"}
    if (local := _given(arguments, "optimizer")) is not None and local != options.get("optimizer", "SGD"):
        lost |= {"optimizer_options"} | ({"momentum"} if options.get("momentum") == MOMENTUM else set())
        lost |= {"lr"} if options.get("lr") in (before.lr, GENTLE) else set()
    if (_given(arguments, "schedule") or "multistep") != "multistep":
        lost |= {"milestones", "lr_factor"}
    if lost or chosen or given:
        sparse = options.get("compressor") in optim.SPARSE
        if options.get("contraction") == optim.wants_contraction(before.needs, sparse):
            lost |= {"contraction"}
    return lost & options.keys()


def _not_of(options: dict[str, Any], everyones: dict[str, dict[str, Any]], own: Collection[str]) -> set[str]:
    return {name for its in everyones.values() for name in its if name in options and name not in own}
