"""Mistakes and failures: the exceptions, and how one of them is told once for a whole job."""

from __future__ import annotations

import sys
import time
import traceback

PATIENCE = 2.0  # seconds that rank 1 leaves to rank 0; each further rank waits a little longer


class UserError(ValueError):
    """A mistake in what the user gave; its message is one sentence: what was given, what is possible, what to do.

    The commands print it without a traceback, once for the whole job. Everything else is a fault and shows its
    traceback.
    """


class NonFiniteError(UserError, FloatingPointError):
    """Training has diverged: a gradient or a parameter is NaN or infinite."""


def tell(error: BaseException, rank: int = 0, size: int = 1) -> None:
    """Print an uncaught ``error`` of ``rank`` among ``size``: a sentence for a user's mistake, else its traceback.

    When all ranks fail alike, rank 0 speaks at once and ends the job before the others, which wait a little, speak too.
    """
    if rank > 0:
        time.sleep(PATIENCE + rank / 20)
    if isinstance(error, UserError):
        text = f"error: {error}"
    elif isinstance(error, KeyboardInterrupt):
        text = "interrupted"
    else:
        text = "".join(traceback.format_exception(error)).rstrip()
        text = f"rank {rank} of {size} failed and ends the job:\n{text}" if size > 1 else text
    print(text, file=sys.stderr, flush=True)
