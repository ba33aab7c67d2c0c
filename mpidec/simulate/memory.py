"""What keeps the cost of a rank the same for many ranks as for few."""

from __future__ import annotations

import contextlib
import ctypes

# Of malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4


def keep_memory() -> None:
    """Let glibc keep what is freed, in the place of handing every large block back to the system.

    A temporary of some megabytes is mapped, filled with zeros page by page and unmapped at each use otherwise, which
    doubles the time of a round for thousands of ranks. Elsewhere than in glibc nothing changes.
    """
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_MMAP_MAX, 0)
        libc.mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)
