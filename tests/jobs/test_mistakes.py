"""Mistakes in the options: one sentence, from one rank, and nothing left behind."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from support.jobs import alone, assert_one_sentence, mpirun

TRAIN = ("-m", "mpidec.train")

WRONG = [
    (["--algorithm", "chocco"], "unknown algorithm 'chocco': known are allreduce, dgc, sign, ef-sign, local, "),
    (["--algorithm", "chocco"], "deepsqueeze, naive, perhaps you meant choco"),
    (
        ["--compressor", "sine"],
        "unknown compressor 'sine': known are identity, fp16, bf16, top-k, random-k, sign, qsgd",
    ),
    (["--topology", "wheel"], "unknown topology 'wheel': known are chain, complete, expander, exponential, grid, "),
    (["--data", "cifar"], "unknown data 'cifar': known are digits"),
    (["--collectives", "nccl"], "unknown collectives 'nccl': known are auto, horovod, mpi"),
    (["--order", "adapt"], "--order belongs to the algorithm dpsgd, but this run uses choco"),
    (["--algorithm", "dpsgd", "--order", "adapt"], "unknown order 'adapt': known are adapt-then-combine"),
    (["--algorithm", "dpsgd", "--compressor", "sign"], "dpsgd does not work with the compressor sign"),
    (["--algorithm", "allreduce", "--compressor", "top-k"], "allreduce does not work with the compressor top-k"),
    (
        ["--algorithm", "dpsgd", "--gamma", "0.5"],
        "--gamma belongs to the algorithms choco, deepsqueeze, naive, but this run uses dpsgd: leave it out, or choose "
        "--algorithm choco",
    ),
    (["--bits", "4"], "--bits belongs to the compressor qsgd, but this run uses sign"),
    (["--ratio", "0.1"], "--ratio belongs to the compressors top-k, random-k, but this run uses sign"),
    (
        ["--algorithm", "sign", "--ratio", "0.1"],
        "--ratio belongs to the compressors top-k, random-k, but sign takes none",
    ),
    (["--algorithm", "sign", "--compressor", "top-k"], "sign has a message of its own and takes no compressor"),
    (["--algorithm", "dgc", "--compressor", "sign"], "dgc does not work with the compressor sign"),
    (["--period", "4"], "--period belongs to the algorithms local, local-sign, local-ef-sign, but this run uses choco"),
    (["--algorithm", "local", "--period", "0"], "--period must be at least 1: got 0"),
    (["--algorithm", "local", "--start-epoch", "-1"], "--start-epoch must be at least 0 and finite: got -1.0"),
    (["--algorithm", "dgc", "--clip", "0"], "--clip must be above 0 and finite: got 0.0"),
    (["--algorithm", "dgc", "--warmup-epochs", "-1"], "--warmup-epochs must be at least 0 and finite: got -1.0"),
    (["--algorithm", "sign", "--vote", "minority"], "unknown vote 'minority': known are majority, mean"),
    (["--algorithm", "ef-sign", "--residual", "x"], "unknown residual 'x': known are parameters, direction"),
    (["--algorithm", "local-sign", "--direction", "int8"], "--direction belongs to the algorithm local-ef-sign, but"),
    (["--algorithm", "local-ef-sign", "--direction", "int4"], "unknown direction 'int4': known are signum, int8"),
    (["--resync", "-1"], "--resync must be at least 0: got -1"),
    (["--algorithm-options", "a=1"], "--algorithm-options are for the algorithms of other packages, but this run uses"),
    (["--compressor-options", "a=1"], "--compressor-options are for the compressors of other packages, but this run"),
    (["--compressor", "top-k", "--ratio", "0"], "--ratio must be above 0 and at most 1: got 0.0"),
    (["--compressor", "qsgd", "--bits", "9"], "--bits must be 1 to 8: got 9"),
    (["--gamma", "2"], "--gamma must be above 0 and at most 1, or auto: got 2.0"),
    (["--epochs", "0"], "--epochs must be at least 1: got 0"),
    (["--batch-size", "-1"], "--batch-size must be at least 1: got -1"),
    (["--lr", "0"], "--lr must be above 0 and finite: got 0.0"),
    (["--lr", "nan"], "--lr must be above 0 and finite: got nan"),
    (["--lr", "fast"], "--lr takes FLOAT: got 'fast' (python -m mpidec.train --help lists all options)"),
    (["--momentum", "fast"], "--momentum takes FLOAT: got 'fast'"),
    (["--period", "2.5"], "--period takes INT: got '2.5'"),
    (["--mask-momentum", "maybe"], "invalid choice 'maybe' for argument '--mask-momentum'"),
    (["--momentum", "1"], "--momentum must be at least 0 and below 1: got 1.0"),
    (["--weight-decay", "-1"], "--weight-decay must be at least 0 and finite: got -1.0"),
    (["--schedule", "cosin"], "unknown schedule 'cosin': known are constant, multistep, cosine, onecycle, perhaps"),
    (["--milestones", "0.5"], "--milestones needs --schedule multistep: leave it out"),
    (
        ["--schedule", "multistep", "--milestones", "5,3"],
        "--milestones are rising fractions of the run",
    ),
    (["--schedule", "onecycle", "--lr-warmup", "2"], "--lr-warmup needs another --schedule than onecycle"),
    (
        ["--algorithm", "dgc", "--optimizer", "Adam"],
        "dgc makes the direction of the step itself",
    ),
    (["--algorithm", "sign", "--clip-norm", "1"], "--clip-norm needs an algorithm that does not make the direction"),
    (["--algorithm", "dgc", "--decay", "weights"], "dgc owns the weight decay and applies it to all parameters"),
    (["--amp", "bf16", "--dtype", "float64"], "--amp bf16 mixes with float32: leave out --dtype float64"),
    (["--batch-norm", "global"], "unknown batch-norm 'global': known are average, local, recompute"),
    (["--accumulate", "0"], "--accumulate must be at least 1: got 0"),
    (["--keep", "0"], "--keep must be at least 1: got 0"),
    (["--download"], "--download has no effect on --data digits: leave it out"),
    (["--data", "text:"], "--data text: names no file: give text:FILE"),
    (["--resume", "auto", "--save-every", "1"], "--resume auto looks for checkpoints in the folder --out: name it"),
    (["--resume", "auto", "--out", "x"], "--resume auto needs checkpoints to go on from: say when to write them"),
    (["--resume", "x", "--out", "y"], "--resume x goes on in that folder: leave out --out y"),
    (["--resume", "x", "--resume-as", "y"], "--resume goes on with the same run and --resume-as with a new one"),
    (["--seed", "-1"], "--seed must be at least 0 and below 2^63: got -1"),
    (["--epoch", "3"], "Unrecognized options: --epoch, 3; perhaps you meant --epochs"),
    (["--epochs"], "Missing value for argument '--epochs'"),
    (["stray"], "Unrecognized options: stray"),
    (["--config", "absent.yaml"], "the configuration absent.yaml cannot be read: No such file or directory"),
    (["--config", "unknown.yaml"], "unknown.yaml: unknown option 'epoch': known are"),
    (["--config", "broken.yaml"], "broken.yaml is no valid YAML"),
    (["--config", "list.yaml"], "list.yaml must hold a mapping"),
    (["--config", "value.yaml"], "--epochs: invalid literal for int() with base 10: 'many'"),
    (["--config", "nested.yaml"], "nested.yaml: epochs must be a single value: got [3]"),
    (["--config", "binary.yaml"], "the configuration binary.yaml cannot be read: it is no UTF-8 text"),
    (["--config", "date.yaml"], "date.yaml is no valid YAML: month must be in 1..12"),
    (["--config", "deep.yaml"], "deep.yaml is no valid YAML: "),
    (["--compressor", ""], "unknown compressor ''"),
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
    (tmp_path / "nested.yaml").write_text("epochs: [3]\n")
    (tmp_path / "binary.yaml").write_bytes(b"epochs: \xff\xfe")
    (tmp_path / "date.yaml").write_text("seed: 2026-13-45\n")
    (tmp_path / "deep.yaml").write_text("seed: " + 5000 * "[")
    files = sorted(tmp_path.iterdir())
    done = alone(*TRAIN, *options, cwd=tmp_path)
    assert_one_sentence(done.stderr, sentence)
    assert done.returncode == 2
    assert done.stdout == ""
    assert sorted(tmp_path.iterdir()) == files, "nothing is left behind"


LATER = [
    (["--model", "resnet"], "mlp, logistic, lenet, resnet20, resnet32, resnet56, lstm"),
    (["--batch-size", "5000"], "a batch of 5000 is larger than a rank's shard of 1438 samples"),
    (["--resume", "used"], "used holds no finished checkpoint: give a run's folder, or one checkpoint"),
    (["--resume-as", "absent"], "absent does not exist: give a run's folder"),
    (["--optimizer", "Adamm"], "unknown optimizer 'Adamm': known are "),
    (["--optimizer", "Adam", "--momentum", "0.3"], "--momentum is not an option of Adam: set it to 0"),
    (["--data", "absent:load"], "--data absent:load: there is no module absent"),
    (["--data", "libsvm:absent"], "--data libsvm:absent: there is no such file"),
    (["--model", "math:pi"], "--model math:pi: it is a float, and must be a function"),
    (["--augment"], "augmentation moves and mirrors images of shape (channels, height, width), but samples have"),
    (["--device", "gpu"], "unknown device 'gpu'"),
    (["--device", "cuda:7"], "device 'cuda:7' is not here"),
    (["--topology", "social"], "got 1"),
    (["--out", "used"], "the output folder used is not empty"),
    (["--out", "used/file"], "the output folder used/file is a file"),
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


def test_a_terminal_without_unicode_gets_the_sentence_too(tmp_path: Path) -> None:
    done = alone(*TRAIN, "--epoch", "3", cwd=tmp_path, PYTHONIOENCODING="latin-1")
    assert_one_sentence(done.stderr, "Unrecognized options: --epoch, 3; perhaps you meant --epochs")


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("mount"), reason="mounts a small disk, which only root may")
def test_a_full_disk(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs", str(disk)], check=False).returncode:
        pytest.skip("mounting is not allowed here")
    try:
        (disk / "filler").write_bytes(bytes(4096))
        done = alone(*TRAIN, "--epochs", "1", "--batch-size", "64", "--out", str(disk / "run"), cwd=tmp_path)
        assert_one_sentence(done.stderr, "cannot be written: No space left on device")
        assert [path.name for path in disk.rglob("*")] == ["filler"]
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_help_comes_once_and_version_too(tmp_path: Path) -> None:
    done = mpirun(4, *TRAIN, "--help", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stdout.count("usage:") == 1
    for option in ("algorithm", "batch-size", "weight-decay", "collectives", "no-nesterov"):
        assert f"--{option}" in done.stdout
    assert mpirun(2, *TRAIN, "--version", cwd=tmp_path).stdout.count("mpidec ") == 1
