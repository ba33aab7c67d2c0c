"""Algorithms, compressors and topologies of another package, registered by entry points."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from support.jobs import ROOT, alone, assert_one_sentence, mpirun

(TRACKING,) = re.findall(r"```python\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(), flags=re.DOTALL)
TRAIN = ("-m", "mpidec.train", "--epochs", "2", "--batch-size", "16")
CODES = """
from mpidec.compress.dense import Identity
from mpidec.optim.dpsgd import DPSGD

class Rounded(Identity):
    def __init__(self, digits=2):
        super().__init__()
        self.digits, self.summable = digits, False
    def __repr__(self):
        return f"Rounded({self.digits})"
    def encode(self, x):
        return super().encode(x.mul(10**self.digits).round().div(10**self.digits))

class Lazy(DPSGD):
    def __init__(self, compressor=None, every=2):
        super().__init__(compressor)
        self.every = every
    def combine(self, x, x_prev, comm, step):
        if step.index % self.every == 0:
            super().combine(x, x_prev, comm, step)

def listed(size):
    return list(range(size))

def wheel(size):
    return {(0, rank) for rank in range(1, size)} | {(rank, rank % (size - 1) + 1) for rank in range(1, size)}
"""
ENTRIES = """
[mpidec.algorithms]
gradient-tracking = elsewhere_tracking:GradientTracking
lazy = elsewhere:Lazy
no-class = elsewhere:wheel
broken = elsewhere_broken:Rule
choco = elsewhere:Lazy
D_PSGD = elsewhere:Lazy

[mpidec.compressors]
rounded = elsewhere:Rounded

[mpidec.topologies]
wheel = elsewhere:wheel
no-graph = elsewhere:listed
"""


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """A folder with an installed package, as pip would leave it."""
    (tmp_path / "elsewhere.py").write_text(CODES)
    (tmp_path / "elsewhere_tracking.py").write_text(TRACKING)
    (tmp_path / "elsewhere_broken.py").write_text("raise OSError('no licence')")
    info = tmp_path / "elsewhere-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: elsewhere\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRIES)
    return tmp_path


def test_they_appear_in_help(elsewhere: Path) -> None:
    shown = " ".join(alone("-m", "mpidec.train", "--help", cwd=elsewhere).stdout.replace("│", " ").split())
    for what in (
        "deepsqueeze, naive, broken, gradient-tracking, lazy or no-class",
        "qsgd or rounded",
        "no-graph or wheel",
    ):
        assert what in shown


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(["--algorithm", "gradient-tracking", "--lr", "0.05", "--momentum", "0"], marks=pytest.mark.long),
        ["--algorithm", "lazy", "--algorithm-options", "every=3", "--compressor", "identity", "--topology", "wheel"],
        ["--compressor", "rounded", "--compressor-options", "digits=3"],
        pytest.param(["--algorithm", "dpsgd", "--compressor", "rounded"], marks=pytest.mark.long),
    ],
    ids=["algorithm", "algorithm and topology", "compressor", "compressor of dpsgd"],
)
def test_they_train(options: list[str], elsewhere: Path) -> None:
    done = mpirun(4, *TRAIN, *options, "--out", "run", cwd=elsewhere)
    assert done.returncode == 0, done.stderr
    assert json.loads((elsewhere / "run" / "summary.json").read_text())["test_accuracy"] > 0.3
    again = mpirun(4, "-m", "mpidec.train", "--config", "run/config.yaml", "--out", "again", cwd=elsewhere)
    assert again.returncode == 0, again.stderr
    digests = [
        json.loads((elsewhere / run / "summary.json").read_text())["parameters_digest"] for run in ("run", "again")
    ]
    assert digests[0] == digests[1]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--algorithm", "broken"], "cannot be imported (OSError: no licence)"),
        (
            ["--algorithm", "lazy", "--algorithm-options", "evry=3"],
            "lazy has no option 'evry': it takes compressor, every",
        ),
        (["--algorithm", "lazy", "--algorithm-options", "every"], "are NAME=VALUE, separated by commas: got 'every'"),
        (["--algorithm", "laxy"], "perhaps you meant lazy"),
        (
            ["--algorithm", "no-class"],
            "no-class is registered among the algorithms, but it is no subclass of Algorithm",
        ),
        (["--topology", "no-graph"], "the family 'no-graph' must make a set of edges or a Topology: got list"),
        (
            ["--algorithm", "gradient-tracking", "--compressor", "sign"],
            "has a message of its own and takes no compressor",
        ),
    ],
)
def test_mistakes(options: list[str], sentence: str, elsewhere: Path) -> None:
    done = alone(*TRAIN, *options, cwd=elsewhere)
    assert_one_sentence(done.stderr, sentence)
    assert done.returncode != 0


def test_a_file_of_theirs_can_be_overruled(elsewhere: Path) -> None:
    (elsewhere / "own.yaml").write_text(
        "algorithm: lazy\nalgorithm_options: every=3\ncompressor: rounded\ncompressor_options: digits=3\n"
    )
    program = (
        "import sys, tyro; from mpidec.train.config import Config; from mpidec.train.configfile import expand; "
        "c = tyro.cli(Config, args=expand(['--config', 'own.yaml', *sys.argv[1:]])); "
        "print(c.algorithm, c.algorithm_options, c.compressor, c.compressor_options)"
    )
    for options, expected in (
        ((), "lazy every=3 rounded digits=3"),
        (("--algorithm", "choco"), "choco None rounded digits=3"),
        (("--algorithm", "choco", "--compressor", "sign"), "choco None sign None"),
        (("--algorithm", "sign"), "sign None None None"),
    ):
        done = alone("-c", program, *options, cwd=elsewhere)
        assert done.stdout.strip() == expected, done.stderr


def test_names_of_mpidec_cannot_be_taken(elsewhere: Path) -> None:
    program = "import mpidec; print(type(mpidec.algorithm('choco')).__name__, type(mpidec.algorithm('dpsgd')).__name__)"
    assert alone("-c", program, cwd=elsewhere).stdout.split() == ["CHOCO", "DPSGD"]
