"""The frame of every command: options from types, one sentence for a mistake, one voice for sixteen ranks."""

from __future__ import annotations

import contextlib
import functools
import io
import operator
import os
import re
import sys
import time
import warnings
from collections.abc import Callable
from types import TracebackType
from typing import Annotated, Any, NoReturn, TypeVar

import tyro

from mpidec.errors import UserError, tell
from mpidec.launcher import launched
from mpidec.version import __version__

Parsed = TypeVar("Parsed")

PATIENCE = 20.0  # seconds that the other ranks leave to rank 0 to say what is wrong, and to the launcher to end them


def parse(target: type[Parsed], program: str, expand: Callable[[list[str]], list[str]] = lambda given: given) -> Parsed:
    """``target``, a dataclass of options, from the command line, which ``expand`` may add to first.

    Help and version come from rank 0 alone; a wrong option ends every rank with one sentence and the exit code 2.
    """
    arguments = sys.argv[1:]
    if "--version" in arguments:
        print(f"mpidec {__version__}\n" if speaks() else "", end="")
        raise SystemExit(0)
    output, complaint = sys.stdout if speaks() else io.StringIO(), io.StringIO()
    try:
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(complaint):
            return tyro.cli(target, prog=program, args=expand(arguments))
    except SystemExit as end:
        if not end.code:
            raise
        fail(f"{_sentence(complaint.getvalue())} ({program} --help lists all options)")
    except UserError as error:
        fail(str(error))


def any_of(commands: dict[str, type]) -> Any:
    """What tyro reads as one of the ``commands``, by name, with its options."""
    parts = (Annotated[kind, tyro.conf.subcommand(name=name)] for name, kind in commands.items())
    return functools.reduce(operator.or_, parts)


def refuse_ranks(reason: str) -> None:
    """End with the exit code 2 where a launcher has started several ranks of a command that is one process."""
    if (launch := launched()) and launch.size > 1:
        fail(f"{reason}: start it without the launcher")


def fail(sentence: str) -> NoReturn:
    """End with the exit code 2 after ``sentence``, before MPI has started; of many ranks only rank 0 speaks."""
    if not speaks():
        # A rank that ended now would make the launcher end rank 0, perhaps before it has spoken.
        time.sleep(PATIENCE + launch.rank / 20 if (launch := launched()) else 0)
    print(f"error: {sentence}", file=sys.stderr, flush=True)
    raise SystemExit(2)


def run(main: Callable[[], None]) -> None:
    """``main()``, with a sentence in place of the traceback where the mistake is the user's."""
    sys.excepthook = _excepthook
    warnings.formatwarning = lambda message, *place: f"warning: {message}\n"
    main()


def _excepthook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if isinstance(error, BrokenPipeError):
        # The reader has seen enough; what is left to flush has nowhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return
    launch = launched()
    tell(error, launch.rank if launch else 0, launch.size if launch else 1)


def speaks() -> bool:
    """Whether this process is the one of its job that talks to the user."""
    launch = launched()
    return launch is None or launch.rank == 0


def _sentence(complaint: str) -> str:
    """What tyro writes into a box of several lines, as one: the fault, and the option that may have been meant.

    The box has a title, then parts between rules: the fault first, hints after it.
    """
    # A launcher may give a rank a terminal of its own, which tyro then colours.
    plain = re.sub(r"\x1b\[[\d;]*m", "", complaint)
    lines = [line.strip("│ ") for line in plain.splitlines()[1:]]
    parts: list[list[str]] = [[]]
    for line in lines:
        if set(line) <= set("─-╰╯"):
            parts.append([])
        else:
            parts[-1].append(line)
    parts = [part for part in parts if part] or [[plain.strip()]]
    fault = re.sub(r"^Error parsing ([A-Z]\w*: )?", "", " ".join(parts[0])).rstrip(".")
    fault = re.sub(r"^Missing from .*?: (--\S+).*", r"\1 is needed: give it a value", fault)
    fault = re.sub(
        r": no type matching \{None\}\|(\S+) could be instantiated from \[(.*)\]$", r" takes \1: got \2", fault
    )
    hints = [part for part in parts if part[0].startswith(("Perhaps you meant", "Arguments similar"))]
    meant = [line.split()[0].rstrip(",") for part in hints for line in part if line.startswith("--")]
    return f"{fault}; perhaps you meant {meant[0]}" if meant else fault
