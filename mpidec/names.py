"""Looking a name up among the known ones, with one sentence for a name that is not there.

Imports nothing heavy, so that ``--help`` can list every algorithm, compressor and topology at once.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from mpidec.errors import UserError

Made = TypeVar("Made")


def construct(name: str, maker: Callable[..., Made], options: dict[str, Any]) -> Made:
    """``maker(**options)``. Raises ``UserError`` for an option that it does not take."""
    takes = list(inspect.signature(maker).parameters)
    for option in options:
        if option not in takes:
            raise UserError(f"{name} has no option {option!r}: it takes {', '.join(takes) or 'none'}")
    return maker(**options)


def _plain(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")


def merged(own: Iterable[str], others: Iterable[str]) -> list[str]:
    """``own`` names, then those of the ``others`` that are no other spelling of an earlier one."""
    spellings: dict[str, str] = {}
    for one in (*own, *others):
        spellings.setdefault(_plain(one), one)
    return list(spellings.values())


def canonical(kind: str, name: str, known: Iterable[str]) -> str:
    """The spelling of ``name`` among ``known``; case, hyphens and underscores do not matter.

    Raises ``UserError`` with the nearest and all known names when there is no such name.

    >>> canonical("compressor", "TopK", ["sign", "top-k"])
    'top-k'
    """
    spellings = {_plain(one): one for one in known}
    if _plain(name) in spellings:
        return spellings[_plain(name)]
    raise UserError(unknown(kind, name, spellings.values()))


def unknown(kind: str, name: str, known: Iterable[str]) -> str:
    """The sentence for an unknown name: what was given, what is possible, what may have been meant."""
    names = list(known)
    near = difflib.get_close_matches(_plain(name), [_plain(one) for one in names], n=1)
    meant = next((f", perhaps you meant {one}" for one in names if near == [_plain(one)]), "")
    return f"unknown {kind} {name!r}: known are {', '.join(names)}{meant}"
