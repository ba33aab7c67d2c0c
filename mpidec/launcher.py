"""What the MPI launcher says of this process through the environment: readable before MPI, and without it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

# Name, rank, size, local rank, local size; the first launcher whose rank and size are both set is the one.
_LAUNCHERS = (
    (
        "Open MPI's mpirun",
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
    ),
    ("a PMI launcher (MPICH, Intel MPI)", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    ("Slurm's srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE"),
)


@dataclass(frozen=True)
class Launch:
    """One process among those that a launcher started; ``local`` figures count the processes on this host."""

    launcher: str
    rank: int
    size: int
    local_rank: int
    local_size: int


def launched(environ: Mapping[str, str] = os.environ) -> Launch | None:
    """How this process was launched, or ``None`` where no MPI launcher started it."""
    for name, rank, size, local_rank, local_size in _LAUNCHERS:
        if rank in environ and size in environ:
            return Launch(
                name,
                int(environ[rank]),
                int(environ[size]),
                int(environ.get(local_rank, environ[rank])),
                _leading(environ.get(local_size, environ[size])),
            )
    return None


def _leading(text: str) -> int:
    """The number that ``text`` begins with: Slurm writes 8(x2) for two nodes with 8 tasks each."""
    return int(text.split("(")[0].split(",")[0])


def limit_threads() -> None:
    """Give each rank of this host its share of the cores, before torch is imported; ``OMP_NUM_THREADS`` overrules it.

    Without it every rank starts a thread per core, and sixteen ranks on two cores spend their time switching.
    """
    here = launched()
    cores = len(os.sched_getaffinity(0))
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, cores // (here.local_size if here else 1))))
