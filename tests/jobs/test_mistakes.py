"""Mistakes and failures: one sentence or one traceback, from one rank, and nothing left hanging."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from support.jobs import alone, mpirun

TRAIN = ("-m", "mpidec.train")

WRONG = [
    (
        ["--algorithm", "chocco"],
        "unknown algorithm 'chocco': known are allreduce, dpsgd, choco, perhaps you meant choco",
    ),
    (["--compressor", "sine"], "unknown compressor 'sine': known are identity, fp16, bf16, top-k, sign, qsgd"),
    (["--topology", "wheel"], "unknown topology 'wheel': known are complete, expander, ring, torus"),
    (["--data", "cifar"], "unknown data 'cifar': known are digits"),
    (["--model", "resnet"], "unknown model 'resnet': known are mlp, logistic"),
    (["--collectives", "nccl"], "unknown collectives 'nccl': known are auto, horovod, mpi"),
    (["--order", "adapt"], "--order belongs to the algorithm dpsgd, but this run uses choco"),
    (["--algorithm", "dpsgd", "--order", "adapt"], "unknown order 'adapt': known are adapt-then-combine"),
    (["--algorithm", "dpsgd", "--compressor", "sign"], "dpsgd does not work with the compressor sign"),
    (["--algorithm", "allreduce", "--compressor", "top-k"], "allreduce does not work with the compressor top-k"),
    (["--algorithm", "dpsgd", "--gamma", "0.5"], "--gamma belongs to the algorithm choco, but this run uses dpsgd"),
    (["--bits", "4"], "--bits belongs to the compressor qsgd, but this run uses sign"),
    (["--ratio", "0.1"], "--ratio belongs to the compressor top-k, but this run uses sign"),
    (["--compressor", "top-k", "--ratio", "0"], "--ratio must be above 0 and at most 1: got 0.0"),
    (["--compressor", "qsgd", "--bits", "9"], "--bits must be 1 to 8: got 9"),
    (["--gamma", "2"], "--gamma must be above 0 and at most 1: got 2.0"),
    (["--epochs", "0"], "--epochs must be at least 1: got 0"),
    (["--batch-size", "-1"], "--batch-size must be at least 1: got -1"),
    (["--lr", "0"], "--lr must be above 0 and finite: got 0.0"),
    (["--lr", "nan"], "--lr must be above 0 and finite: got nan"),
    (["--lr", "fast"], "--lr: could not convert string to float: 'fast'"),
    (["--momentum", "1"], "--momentum must be at least 0 and below 1: got 1.0"),
    (["--weight-decay", "-1"], "--weight-decay must be at least 0 and finite: got -1.0"),
    (["--seed", "-1"], "--seed must be at least 0 and below 2^63: got -1"),
    (["--epoch", "3"], "Unrecognized options: --epoch, 3; perhaps you meant --epochs"),
    (["--epochs"], "Missing value for argument '--epochs'"),
    (["stray"], "Unrecognized options: stray"),
    (["--config", "absent.yaml"], "the configuration absent.yaml cannot be read: No such file or directory"),
    (["--config", "unknown.yaml"], "unknown.yaml: unknown option 'epoch': known are"),
    (["--config", "broken.yaml"], "broken.yaml is no valid YAML"),
    (["--config", "list.yaml"], "list.yaml must hold a mapping"),
    (["--config", "value.yaml"], "--epochs: invalid literal for int() with base 10: 'many'"),
    (["--config"], "Missing value for argument '--config'"),
]


def label(value: object) -> str:
    """The command line as the name of its case."""
    return " ".join(value) if isinstance(value, list) else ""


@pytest.mark.parametrize(("options", "sentence"), WRONG, ids=label)
def test_wrong_options(options: list[str], sentence: str, tmp_path: Path) -> None:
    (tmp_path / "unknown.yaml").write_text("epoch: 3\n")
    (tmp_path / "broken.yaml").write_text("epochs: [3\n")
    (tmp_path / "list.yaml").write_text("- epochs\n")
    (tmp_path / "value.yaml").write_text("epochs: many\n")
    files = sorted(tmp_path.iterdir())
    done = alone(*TRAIN, *options, cwd=tmp_path)
    assert_one_sentence(done.stderr, sentence)
    assert done.returncode == 2
    assert done.stdout == ""
    assert sorted(tmp_path.iterdir()) == files, "nothing is left behind"


LATER = [
    (["--batch-size", "5000"], "a batch of 5000 is larger than a rank's shard of 1438 samples"),
    (["--device", "gpu"], "unknown device 'gpu'"),
    (["--device", "cuda:7"], "device 'cuda:7' is not here"),
    (["--out", "used"], "the output folder used is not empty"),
    (["--out", "used/file"], "the output folder used/file cannot be written"),
]


@pytest.mark.parametrize(("options", "sentence"), LATER, ids=label)
def test_mistakes_that_show_later(options: list[str], sentence: str, tmp_path: Path) -> None:
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "file").write_text("keep me")
    done = alone(*TRAIN, *options, cwd=tmp_path)
    assert_one_sentence(done.stderr, sentence)
    assert done.returncode != 0
    assert [path.name for path in tmp_path.rglob("*")] == ["used", "file"]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--algorithm", "chocco"], "unknown algorithm 'chocco'"),
        (["--batch-size", "500"], "a batch of 500 is larger than a rank's shard of 360 samples"),
    ],
    ids=["before MPI", "after MPI"],
)
def test_four_ranks_make_one_mistake(options: list[str], sentence: str, tmp_path: Path) -> None:
    done = mpirun(4, *TRAIN, *options, cwd=tmp_path, timeout=60)
    assert done.returncode != 0
    assert done.stderr.count("error: ") == 1, done.stderr
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr


def test_help_comes_once_and_version_too(tmp_path: Path) -> None:
    done = mpirun(4, *TRAIN, "--help", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stdout.count("usage:") == 1
    for option in ("algorithm", "batch-size", "weight-decay", "collectives", "no-nesterov"):
        assert f"--{option}" in done.stdout
    assert mpirun(2, *TRAIN, "--version", cwd=tmp_path).stdout.count("mpidec ") == 1


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
    "one gradient is bad": (
        "if world.rank == 2: model.bias.grad[0] = float('nan')",
        "rank 2 of 3 failed",
        "rank 2, step 5: the gradient of parameter 'bias' holds NaN or infinity",
    ),
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


def test_singletons_notice_that_they_were_meant_to_be_one_job(tmp_path: Path) -> None:
    """As if another MPI's launcher had started four processes."""
    done = alone(*TRAIN, cwd=tmp_path, PMI_RANK="0", PMI_SIZE="4")
    assert done.returncode != 0
    assert_one_sentence(done.stderr, "a PMI launcher (MPICH, Intel MPI) started 4 processes, but Open MPI")


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
    assert several.stdout.count("MPI library") == 1
    assert "2 on 1 hosts" in several.stdout
    assert "MULTIPLE" in several.stdout


def assert_one_sentence(stderr: str, sentence: str) -> None:
    lines = [line for line in stderr.splitlines() if line.strip()]
    assert len(lines) == 1, stderr
    assert lines[0].startswith("error: ")
    assert sentence in lines[0]
    assert "Traceback" not in stderr
