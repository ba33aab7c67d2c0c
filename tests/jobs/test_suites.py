"""The MPI suites on 1 and 4 ranks, and on 2 in the long form: each of their cases counts here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.jobs import ROOT, mpirun


@pytest.mark.timeout(900)
@pytest.mark.parametrize("ranks", [1, pytest.param(2, marks=pytest.mark.long), 4])
def test_mpi_suite(ranks: int, tmp_path: Path, subtests: pytest.Subtests, request: pytest.FixtureRequest) -> None:
    cases = tmp_path / "cases.jsonl"
    options = ["--color=no", "--with-mpi", f"--cases={cases}"]
    options += ["--require-ranks"] if ranks == 4 else []
    options += ["--long"] if request.config.getoption("--long") else []
    done = mpirun(ranks, "-m", "pytest", *options, "tests/mpi", cwd=ROOT, timeout=800)
    report = f"{done.stdout}\n{done.stderr}"
    assert cases.exists(), report
    for case in map(json.loads, cases.read_text().splitlines()):
        with subtests.test(case["name"], ranks=ranks):
            if case["outcome"] == "skipped":
                pytest.skip(case["reason"])
            assert case["outcome"] == "passed", case["reason"]
    assert done.returncode == 0, report


FAILING = """
import pytest
from mpi4py import MPI

@pytest.mark.mpi
def test_one_rank_fails_while_the_others_wait():
    assert MPI.COMM_WORLD.rank != 1, "on purpose"
    MPI.COMM_WORLD.Barrier()
"""

HANGING = """
import pytest
from mpi4py import MPI

@pytest.mark.mpi
@pytest.mark.timeout(3, method="thread")
def test_a_message_that_never_comes():
    if MPI.COMM_WORLD.rank == 0:
        MPI.COMM_WORLD.recv(source=1)
    MPI.COMM_WORLD.Barrier()
"""


@pytest.mark.parametrize(("source", "shown"), [(FAILING, "on purpose"), (HANGING, "Timeout")], ids=["fails", "hangs"])
def test_one_bad_rank_ends_the_job(source: str, shown: str, tmp_path: Path) -> None:
    (tmp_path / "test_bad.py").write_text(source)
    done = mpirun(
        2, "-m", "pytest", "--color=no", "-p", "support.ranks", "--with-mpi", "test_bad.py", cwd=tmp_path, timeout=60
    )
    assert done.returncode != 0
    assert shown in done.stdout + done.stderr


def test_too_few_ranks_skip_or_fail_as_asked(tmp_path: Path) -> None:
    (tmp_path / "test_four.py").write_text("import pytest\n@pytest.mark.mpi(min_size=4)\ndef test_four(): pass\n")
    command = ["-m", "pytest", "--color=no", "-p", "support.ranks", "--with-mpi", "-rs", "test_four.py"]
    skipped = mpirun(2, *command, cwd=tmp_path)
    assert skipped.returncode == 0, skipped.stdout + skipped.stderr
    assert "requires 4 MPI processes" in " ".join(skipped.stdout.split())
    assert mpirun(2, *command, "--require-ranks", cwd=tmp_path).returncode != 0


@pytest.mark.long
@pytest.mark.timeout(900)
def test_bare_pytest_from_the_root_on_three_ranks() -> None:
    done = mpirun(3, "-m", "pytest", "--color=no", "--with-mpi", cwd=ROOT, timeout=800)
    assert done.returncode == 0, done.stdout + done.stderr
