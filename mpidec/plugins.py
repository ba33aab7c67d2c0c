"""Algorithms, compressors and topologies of other packages, which they register by an entry point.

A package offers them in its ``pyproject.toml``, in the groups ``mpidec.algorithms``, ``mpidec.compressors`` (classes)
and ``mpidec.topologies`` (functions from a size to a set of edges, or to a ``Topology``). Only the chosen one is
imported. A name that mpidec itself has means mpidec's own.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pkgutil import resolve_name
from typing import Any

from mpidec.errors import UserError


@cache
def _found(kind: str) -> dict[str, EntryPoint]:
    return {one.name: one for one in sorted(entry_points(group=f"mpidec.{kind}"))}


def names(kind: str) -> list[str]:
    """What other packages offer of ``kind``: ``algorithms``, ``compressors`` or ``topologies``."""
    return list(_found(kind))


def load(kind: str, name: str) -> Any:
    """The object that is registered as ``name``.

    Raises ``UserError`` with the reason where it cannot be imported.
    """
    one = _found(kind)[name]
    try:
        return one.load()
    except Exception as error:  # a foreign module may fail in any way, and each is a reason
        raise UserError(
            f"{name}, which is registered among the {kind} as {one.value}, cannot be imported "
            f"({type(error).__name__}: {(str(error).splitlines() or ['no reason'])[0]}): repair its package"
        ) from error


def load_class(kind: str, name: str, base: str) -> Any:
    """The class that is registered as ``name``; ``base`` is the place of mpidec's own, which needs torch.

    Raises ``UserError`` where it cannot be imported, or is no subclass of ``base``.
    """
    found, parent = load(kind, name), resolve_name(base)
    if not (isinstance(found, type) and issubclass(found, parent)):
        raise UserError(f"{name} is registered among the {kind}, but it is no subclass of {parent.__name__}: {found!r}")
    return found
