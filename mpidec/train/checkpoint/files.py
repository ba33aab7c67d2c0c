"""The file of one rank: written with its digest, read only where that fits, and never executed."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, BinaryIO, cast

import torch
from torch import Tensor

from mpidec.errors import UserError
from mpidec.folder import replacing

BLOCK = 2**20  # bytes that are read at once
PLAIN = (Tensor, str, bytes, int, float, bool, type(None), torch.Size, torch.dtype, torch.device)


def write(path: Path, state: Mapping[str, Any]) -> dict[str, Any]:
    """Put ``state`` into ``path``, on the disk; returns its ``name``, ``size`` in bytes, and ``sha256``.

    Raises ``OSError`` where that fails, with nothing left behind, and ``UserError`` for what could not be loaded again.
    """
    if wrong := _foreign(state, "state"):
        raise UserError(f"{wrong}, and only tensors, numbers, strings, lists and dicts can be loaded again safely")
    with replacing(path) as file:
        size, digest = dump(state, file)
    return {"name": path.name, "size": size, "sha256": digest}


def dump(state: Mapping[str, Any], file: BinaryIO) -> tuple[int, str]:
    """``torch.save`` of ``state`` as a plain dict; returns the bytes and their sha256. Raises ``OSError``."""
    sink = _Sink(file)
    torch.save(dict(state), cast("IO[bytes]", sink))
    if sink.failure is not None:
        raise sink.failure
    return sink.size, sink.digest.hexdigest()


def read(path: Path, expected: Mapping[str, Any]) -> dict[str, Any]:
    """The state in ``path``, on the CPU, where it has the size and the digest of its entry in the manifest.

    Raises ``UserError`` where the file is missing, cannot be read, is another one, or holds more than plain values.
    """
    try:
        with open(path, "rb") as file:
            _refuse_other(path, file, expected)
            file.seek(0)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of what is refused anyway
                state = torch.load(file, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise UserError(f"{path} is missing") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror})") from None
    except UserError:
        raise
    except Exception:  # a foreign file fails in many ways; torch's advice would be to trust it
        raise UserError(f"{path} holds more than tensors and plain values, and is not opened") from None
    if not isinstance(state, dict) or not isinstance(state.get("model"), dict):
        raise UserError(f"{path} holds no state of a rank")
    return state


def check(path: Path, expected: Mapping[str, Any]) -> str:
    """What is wrong with the bytes of the file, in a few words; empty where they are those of the manifest."""
    try:
        with open(path, "rb") as file:
            _refuse_other(path, file, expected)
    except FileNotFoundError:
        return f"{path} is missing"
    except OSError as error:
        return f"{path} cannot be read ({error.strerror})"
    except UserError as error:
        return str(error)
    return ""


def _refuse_other(path: Path, file: BinaryIO, expected: Mapping[str, Any]) -> None:
    size = file.seek(0, 2)
    if size != expected["size"]:
        raise UserError(f"{path} has {size:,} bytes, and {expected['size']:,} were written")
    file.seek(0)
    digest = hashlib.sha256()
    while block := file.read(BLOCK):
        digest.update(block)
    if digest.hexdigest() != expected["sha256"]:
        raise UserError(f"{path} is damaged, or not the file that was saved (its sha256 differs)")


class _Sink:
    """What torch writes into. The first failure is kept: raised inside torch, it would lose its reason."""

    def __init__(self, file: BinaryIO) -> None:
        self.file, self.size, self.digest = file, 0, hashlib.sha256()
        self.failure: OSError | None = None

    def write(self, data: Any) -> int:
        count = memoryview(data).nbytes
        if self.failure is None:
            try:
                self.file.write(data)
            except OSError as error:
                self.failure = error
        self.digest.update(data)
        self.size += count
        return count

    def flush(self) -> None:
        """Nothing: ``replacing`` flushes what is whole."""


def _foreign(value: Any, name: str) -> str:
    """The first part of ``value`` that ``weights_only`` would refuse; empty where there is none."""
    kind = type(value)
    if isinstance(value, Mapping):
        for key, one in value.items():
            if wrong := _foreign(key, f"a key of {name}") or _foreign(one, f"{name}[{key!r}]"):
                return wrong
        plain = kind.__name__ in ("dict", "OrderedDict", "Counter")
    elif isinstance(value, (list, tuple, set)):
        for index, one in enumerate(value):
            if wrong := _foreign(one, f"{name}[{index}]"):
                return wrong
        plain = kind in (list, tuple, set, torch.Size)
    else:
        plain = kind in PLAIN or kind in (torch.nn.Parameter, torch.nn.Buffer if hasattr(torch.nn, "Buffer") else None)
    return "" if plain else f"{name} is a {kind.__module__}.{kind.__qualname__}"
