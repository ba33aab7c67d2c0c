"""Starting real jobs: MPI launched in a process of its own, with the flags that a crowded machine needs."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
TIMEOUT = 240.0  # seconds
LAUNCHERS = ("OMPI_COMM", "OMPI_UNIVERSE", "OMPI_MCA_ess", "PMIX_", "PRTE_", "PMI_", "SLURM_", "HYDRA_", "MPI_LOCAL")


def environment(**more: str) -> dict[str, str]:
    """The environment of a job on this machine, root and crowded as it may be."""
    # Also where the tests themselves run under a launcher: what they start is a job of its own.
    outside = {name: value for name, value in os.environ.items() if not name.startswith(LAUNCHERS)}
    return {
        **outside,
        "OMP_NUM_THREADS": "1",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")]),
        **more,
    }


def launcher(ranks: int) -> list[str]:
    """The launcher that belongs to this interpreter's environment, with its flags."""
    beside = Path(sys.executable).parent / "mpiexec"
    path = str(beside) if beside.exists() else shutil.which("mpiexec")
    assert path, "no mpiexec, neither beside the interpreter nor on PATH"
    version = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout
    crowded = ["--oversubscribe"] if "Open MPI" in version or "open-mpi" in version else []
    return [path, *crowded, "-n", str(ranks)]


def start(command: list[str], cwd: Path, timeout: float = TIMEOUT, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run ``command`` to its end; after ``timeout`` seconds it is killed with all it started, and the test fails."""
    process = subprocess.Popen(
        command,
        cwd=cwd,
        env=environment(**environ),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        raise AssertionError(f"{command} hung for {timeout} s:\n{out}\n{err}") from None
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def alone(*arguments: str, cwd: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    """``python ARGUMENTS`` without a launcher."""
    return start([sys.executable, *arguments], cwd, **environ)


def mpirun(
    ranks: int, *arguments: str, cwd: Path, timeout: float = TIMEOUT, **environ: str
) -> subprocess.CompletedProcess[str]:
    """``mpiexec -n RANKS python ARGUMENTS``."""
    return start([*launcher(ranks), sys.executable, *arguments], cwd, timeout, **environ)


def assert_one_sentence(stderr: str, sentence: str) -> None:
    """``stderr`` is one line, an error that holds ``sentence``."""
    lines = [line for line in stderr.splitlines() if line.strip()]
    assert len(lines) == 1, stderr
    assert lines[0].startswith("error: ")
    assert sentence in lines[0]
    assert "Traceback" not in stderr
