"""Data sets and networks of a user's own: ``package.module:factory``."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from typing import Any

from mpidec.errors import UserError


def factory(option: str, text: str) -> Callable[..., Any]:
    """The function that ``text`` names, for ``option``; modules beside the user, in the working directory, are found.

    Raises ``UserError`` where there is no such module, it cannot be imported, or has no such function.
    """
    module_name, _, path = text.partition(":")
    if not {"", os.getcwd()} & set(sys.path):
        # Last, so that it hides nothing; and for good, since worker processes go by the same path.
        sys.path.append(os.getcwd())
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and (module_name == error.name or module_name.startswith(f"{error.name}.")):
            raise UserError(
                f"{option} {text}: there is no module {error.name}; it must be installed, on PYTHONPATH, or in the "
                f"working directory {os.getcwd()}"
            ) from None
        raise UserError(f"{option} {text}: the module cannot be imported ({told(error)})") from error
    except (Exception, SystemExit) as error:  # a user's module may fail in any way
        raise UserError(f"{option} {text}: the module cannot be imported ({told(error)})") from error
    for name in path.split("."):
        if not hasattr(found, name):
            raise UserError(f"{option} {text}: {module_name} has no attribute {path}")
        found = getattr(found, name)
    if not callable(found):
        raise UserError(f"{option} {text}: it is {_article(found)}, and must be a function")
    made: Callable[..., Any] = found
    return made


def call(option: str, text: str, *arguments: Any) -> Any:
    """What the factory ``text`` returns. Raises ``UserError`` where it raises, which is the cause of that."""
    function = factory(option, text)
    try:
        return function(*arguments)
    except UserError:
        raise
    except (Exception, SystemExit) as error:
        raise UserError(f"{option} {text} raises {told(error)}{_place(error)}") from error


def told(error: BaseException) -> str:
    """Kind and first line of ``error``."""
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or ['no reason'])[0].rstrip('.')}"


def _place(error: BaseException) -> str:
    """Where a user's code has failed: the innermost line outside installed packages, and outside this file."""
    place, trace = "", error.__traceback__
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if file != __file__ and "site-packages" not in file:
            place = f", in {os.path.relpath(file)} line {trace.tb_lineno}"
        trace = trace.tb_next
    return place


def _article(found: Any) -> str:
    kind = type(found).__name__
    return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"
