"""The machine, the MPI and the versions that figures belong to."""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path

from mpidec import doctor
from mpidec.version import __version__, installed


def machine() -> dict[str, str]:
    """What the figures were measured on, and when."""
    return {
        "date": time.strftime("%Y-%m-%d"),
        "processor": _processor(),
        "cores": str(len(os.sched_getaffinity(0))),
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB",
        "system": f"{platform.system()} {platform.release()}",
    }


def versions() -> dict[str, str]:
    """Of what the figures depend on."""
    from mpidec.transport import mpi

    mpi.do_not_start()
    return {
        "mpidec": __version__,
        "Python": platform.python_version(),
        "torch": doctor.torch_build(),
        "MPI": mpi.library() or "none",
        "mpi4py": installed("mpi4py") or "not installed",
        "Horovod": installed("horovod") or "not installed",
    }


def _processor() -> str:
    file = Path("/proc/cpuinfo")
    lines = file.read_text().splitlines() if file.exists() else []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.machine()
