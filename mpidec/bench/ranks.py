"""MPI jobs that a benchmark starts, and the results that their rank 0 hands back."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from mpidec.bench.result import Result
from mpidec.errors import UserError

RESULTS = "MPIDEC_BENCH_RESULTS"  # file that rank 0 appends its results to


def launch(ranks: int, module: str, *arguments: str, timeout: float = 300.0) -> list[Result]:
    """The results of ``python -m module`` on so many ``ranks`` of this host.

    Raises ``UserError`` where there is no launcher, and where the job fails or takes longer than ``timeout`` seconds.
    """
    launcher = shutil.which("mpirun") or shutil.which("mpiexec")
    if launcher is None:
        raise UserError("this part starts MPI jobs, but no mpirun is on PATH: install an MPI, or run bin/setup")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "results.jsonl"
        environ = {**os.environ, RESULTS: str(file), "OMP_NUM_THREADS": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1"}
        environ["PRTE_MCA_rmaps_default_mapping_policy"] = ":oversubscribe"
        command = [launcher, "-n", str(ranks), sys.executable, "-m", module, *arguments]
        try:
            done = subprocess.run(
                command, env=environ, capture_output=True, text=True, check=False, timeout=timeout, errors="replace"
            )
        except subprocess.TimeoutExpired:
            raise UserError(f"{module} on {ranks} ranks took longer than {timeout:g} s and was ended") from None
        if done.returncode:
            said = (done.stderr.strip() or done.stdout.strip() or "nothing").splitlines()
            raise UserError(f"{module} on {ranks} ranks failed with code {done.returncode}: {said[0]}")
        return [Result(**json.loads(line)) for line in file.read_text().splitlines()]


def hand_back(results: Iterable[Result]) -> None:
    """Called by rank 0 of a job that ``launch`` started."""
    with open(os.environ[RESULTS], "a", encoding="utf-8") as file:
        file.writelines(json.dumps(one.record()) + "\n" for one in results)
