"""Failures of a running job end it with one traceback, and what the environment lacks is said."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import pytest

from support.jobs import ROOT, alone, assert_one_sentence, launcher, mpirun, start

TRAIN = ("-m", "mpidec.train")

SCRIPT = """
import sys, torch, mpidec
world = mpidec.init(device="cpu")
model = torch.nn.Linear(3, 3)
optimizer = mpidec.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model, mpidec.{rule}())
for step in range(1, 100):
    optimizer.zero_grad()
    model(torch.ones(2, 3)).sum().backward()
    if step == 5:
        {fault}
    optimizer.step()
"""
FAULTS = {
    "one rank raises": (
        "if world.rank == 1: raise KeyError('on purpose')",
        "rank 1 of 3 failed",
        "KeyError: 'on purpose'",
    ),
    "all ranks raise": ("raise KeyError('on purpose')", "rank 0 of 3 failed", "KeyError: 'on purpose'"),
}


@pytest.mark.parametrize("rule", ["CHOCO", "AllReduce"])
@pytest.mark.parametrize("fault", FAULTS)
def test_an_exception_on_one_rank_ends_the_job(rule: str, fault: str, tmp_path: Path) -> None:
    code, who, what = FAULTS[fault]
    (tmp_path / "script.py").write_text(SCRIPT.format(rule=rule, fault=code))
    started = time.monotonic()
    done = mpirun(3, "script.py", cwd=tmp_path, timeout=60)
    assert done.returncode != 0
    assert done.stderr.count("Traceback") == 1, done.stderr
    assert who in done.stderr
    assert what in done.stderr
    assert time.monotonic() - started < 40, "the start included"


@pytest.mark.parametrize("rule", ["CHOCO", "AllReduce"])
def test_a_bad_gradient_on_one_rank_ends_the_job_with_a_sentence(rule: str, tmp_path: Path) -> None:
    code = "if world.rank == 2: model.bias.grad[0] = float('nan')"
    (tmp_path / "script.py").write_text(SCRIPT.format(rule=rule, fault=code))
    done = mpirun(3, "script.py", cwd=tmp_path, timeout=60)
    assert done.returncode != 0
    assert done.stderr.count("error: ") == 1
    assert "error: rank 2, step 5: the gradient of parameter 'bias' holds NaN or infinity" in done.stderr
    assert "Traceback" not in done.stderr


def test_diverged_parameters_are_no_result(tmp_path: Path) -> None:
    """One step, after which no gradient is looked at any more; float16 on the wire has turned them into infinity."""
    options = ("--algorithm", "dpsgd", "--compressor", "fp16", "--lr", "1e7", "--epochs", "1", "--batch-size", "719")
    done = mpirun(2, *TRAIN, *options, "--out", "run", cwd=tmp_path, timeout=60)
    assert done.returncode != 0
    assert done.stderr.count("error: the parameters of rank 0, or their average, hold NaN or infinity") == 1
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["status"] == "diverged"


def test_ranks_with_different_options_are_refused(tmp_path: Path) -> None:
    command = [
        *launcher(1),
        sys.executable,
        *TRAIN,
        "--lr",
        "0.1",
        ":",
        "-n",
        "1",
        sys.executable,
        *TRAIN,
        "--lr",
        "0.2",
    ]
    done = start(command, tmp_path, timeout=60)
    assert done.returncode != 0
    assert done.stderr.count("error: the ranks differ in --lr: 0.1 on rank 0, but 0.2 on rank 1") == 1
    assert not list(tmp_path.iterdir())


def test_a_broken_import_is_told_once(tmp_path: Path) -> None:
    (tmp_path / "tqdm.py").write_text("raise KeyError('shadowed')")
    done = mpirun(3, *TRAIN, cwd=tmp_path, timeout=60, PYTHONPATH=os.pathsep.join([str(ROOT), str(tmp_path)]))
    assert done.returncode != 0
    assert done.stderr.count("Traceback") == 1, done.stderr
    assert "rank 0 of 3 failed" in done.stderr


def test_a_reader_that_leaves_is_no_failure(tmp_path: Path) -> None:
    command = f"{sys.executable} -m mpidec.topology ring 3000 | head -1; exit ${{PIPESTATUS[0]}}"
    done = start(["bash", "-c", command], tmp_path)
    assert "ring over 3000 ranks" in done.stdout
    assert done.stderr == ""


def test_singletons_notice_that_they_were_meant_to_be_one_job(tmp_path: Path) -> None:
    """As if another MPI's launcher had started four processes."""
    done = alone(*TRAIN, cwd=tmp_path, PMI_RANK="0", PMI_SIZE="4")
    assert done.returncode != 0
    assert_one_sentence(done.stderr, "a PMI launcher (MPICH, Intel MPI) started 4 processes, but Open MPI")


def test_a_broken_horovod_is_said_and_done_without(tmp_path: Path) -> None:
    (tmp_path / "horovod").mkdir()
    (tmp_path / "horovod" / "__init__.py").write_text("raise ImportError('built for another torch')")
    path = os.pathsep.join([str(ROOT), str(tmp_path)])
    options = ("--algorithm", "allreduce", "--epochs", "1", "--batch-size", "64", "--out", "run")
    done = mpirun(2, *TRAIN, *options, cwd=tmp_path, PYTHONPATH=path)
    assert done.returncode == 0, done.stderr
    assert (
        done.stderr.count("Horovod is not used, since it cannot be imported (ImportError: built for another torch)")
        == 1
    )
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["collectives"] == "mpi"
    wanted = mpirun(2, *TRAIN, *options[:-1], "other", "--collectives", "horovod", cwd=tmp_path, PYTHONPATH=path)
    assert wanted.returncode != 0
    assert wanted.stderr.count("error: horovod cannot be used: it cannot be imported") == 1


LOADER = """
import sys, torch, mpidec
from torch.utils.data import DataLoader, TensorDataset

def main():
    world = mpidec.init(device="cpu")
    for method in ("fork", "spawn", "forkserver"):
        data = DataLoader(TensorDataset(torch.arange(8.0)), batch_size=2, num_workers=1, multiprocessing_context=method)
        total = torch.stack([batch.sum() for (batch,) in data]).sum()
        world.transport.all_reduce(total)
        assert total == 28 * world.size
    if world.rank == 0:
        print("all three")

if __name__ == "__main__":
    main()
"""


def test_data_loading_workers_beside_mpi(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(LOADER)
    done = mpirun(2, "script.py", cwd=tmp_path, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "all three" in done.stdout


def test_doctor(tmp_path: Path) -> None:
    done = alone("-m", "mpidec.doctor", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for row in ("MPI library", "launcher", "torch", "Horovod", "cores", "threads", "device buffers"):
        assert row in done.stdout
    assert "MPI not started" in done.stdout
    several = mpirun(2, "-m", "mpidec.doctor", cwd=tmp_path)
    assert several.returncode == 0, several.stderr
    mismatch = alone("-m", "mpidec.doctor", cwd=tmp_path, PMI_RANK="0", PMI_SIZE="4")
    assert mismatch.returncode == 1
    assert "MPI library" in mismatch.stdout
    assert_one_sentence(mismatch.stderr, "a PMI launcher (MPICH, Intel MPI) started 4 processes, but")
    assert several.stdout.count("MPI library") == 1
    assert "2 on 1 hosts" in several.stdout
    assert "MULTIPLE" in several.stdout
