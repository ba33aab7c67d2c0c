"""``python -m mpidec.doctor``: which MPI, launcher, torch and Horovod this environment really uses.

Works without a launcher and without MPI; under a launcher (``mpirun -np 4 python -m mpidec.doctor``) it also looks at
the job as a whole. The exit code is 1 where something cannot work.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tabulate import tabulate

from mpidec.cli import parse, run, speaks
from mpidec.errors import UserError
from mpidec.launcher import launched, limit_threads
from mpidec.version import __version__, installed

Row = tuple[str, str]


@dataclass
class Options:
    """Show which MPI, launcher, torch and Horovod this environment really uses, and whether they fit together."""


def main() -> None:
    """Print the table; the exit code is 1 where something does not fit."""
    parse(Options, "python -m mpidec.doctor")
    limit_threads()
    rows, faults = [*software(), *machine()], []
    loaded = loaded_mpi_libraries()
    rows.append(("libmpi loaded", ", ".join(loaded) or "none"))
    if len(loaded) > 1:
        faults.append("two MPI libraries are loaded into one process: build mpi4py and Horovod against the same one")
    if launched() is not None:
        job, job_faults = whole_job(faults)
        rows += job
        faults = job_faults
    if speaks():
        print(tabulate(rows, tablefmt="plain"), flush=True)
        for fault in dict.fromkeys(faults):
            print(f"error: {fault}", file=sys.stderr, flush=True)
    raise SystemExit(1 if faults else 0)


def software() -> list[Row]:
    """MPI, launcher, torch and Horovod."""
    from mpidec.transport import horovod, mpi

    launch = launched()
    if launch is None:
        # Only the library's name is wanted; nobody is there to talk to.
        mpi.do_not_start()
    without = horovod.missing()
    usable = f"not usable, {without}; central algorithms sum with mpi4py" if without else "usable, built with MPI"
    gpu = os.environ.get("MPIDEC_GPU_AWARE", "auto")
    return [
        ("mpidec", f"{__version__}, Python {sys.version.split()[0]}"),
        ("MPI library", mpi.library() or "none: install one, or run bin/setup"),
        ("mpi4py", installed("mpi4py") or "not installed"),
        ("launcher", launcher()),
        ("launched by", launch.launcher if launch else "nothing: one rank, MPI not started"),
        ("torch", torch_build()),
        ("Horovod", ", ".join(filter(None, [installed("horovod"), usable]))),
        (
            "device buffers",
            "handed to MPI (MPIDEC_GPU_AWARE=1)" if gpu == "1" else f"through pinned host memory ({gpu})",
        ),
    ]


def machine() -> list[Row]:
    """Cores and threads of this process."""
    import torch

    cores = sorted(os.sched_getaffinity(0))
    return [
        ("cores", f"{len(cores)} of {os.cpu_count()}: {cores[0]} to {cores[-1]}"),
        ("threads", f"{torch.get_num_threads()} a rank (OMP_NUM_THREADS={os.environ.get('OMP_NUM_THREADS')})"),
    ]


def whole_job(faults: list[str]) -> tuple[list[Row], list[str]]:
    """Ranks, hosts and thread level, gathered from every rank; the faults of all ranks."""
    from mpidec.transport.mpi import thread_level
    from mpidec.world import init

    try:
        world = init(device="cpu")
    except UserError as error:
        return [], [*faults, str(error)]
    hosts = Counter(world.transport.all_gather_objects(socket.gethostname()))
    everyones = [fault for rank in world.transport.all_gather_objects(faults) for fault in rank]
    return [
        (
            "ranks",
            f"{world.size} on {len(hosts)} hosts: " + ", ".join(f"{host} {ranks}" for host, ranks in hosts.items()),
        ),
        ("MPI threads", thread_level()),
    ], everyones


def loaded_mpi_libraries() -> list[str]:
    """Paths of the MPI libraries that are mapped into this process."""
    maps = Path("/proc/self/maps")
    paths = re.findall(r"\s(/\S*/lib(?:mpi|mpich)\.so\S*)", maps.read_text()) if maps.exists() else []
    return sorted({os.path.realpath(path) for path in paths})


def launcher() -> str:
    """Path and version of the ``mpirun`` on PATH."""
    path = shutil.which("mpirun") or shutil.which("mpiexec")
    if path is None:
        return "no mpirun on PATH"
    clean = {
        name: value for name, value in os.environ.items() if not name.startswith(("OMPI_", "PMIX_", "PMI_", "PRTE_"))
    }
    shown = subprocess.run([path, "--version"], env=clean, capture_output=True, text=True, check=False, timeout=30)
    return f"{path}, {(shown.stdout.strip().splitlines() or ['of unknown version'])[0]}"


def torch_build() -> str:
    """Version of torch and the GPUs it sees."""
    import torch

    gpus: Any = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return f"{torch.__version__}, {gpus or 'no'} GPU{'s' if gpus != 1 else ''}"


if __name__ == "__main__":
    run(main)
