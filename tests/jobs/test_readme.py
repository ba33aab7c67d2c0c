"""What the README and CONTRIBUTING show, works."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import tyro

from mpidec.compress import COMPRESSORS
from mpidec.optim import ALGORITHMS
from mpidec.simulate.__main__ import COMMANDS, any_of
from mpidec.topology import FAMILIES
from mpidec.train.config import Config
from mpidec.train.names import DATA, MODELS
from support.jobs import ROOT, alone, mpirun

README = (ROOT / "README.md").read_text()
TRAINING = (ROOT / "docs" / "training.md").read_text()
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)


def side(diff: str, sign: str) -> str:
    """The program before (``-``) or after (``+``) a diff."""
    return "\n".join(line[1:] for line in diff.splitlines() if line[:1] in (" ", sign, ""))


def test_the_diff_turns_a_plain_loop_into_a_distributed_one(tmp_path: Path) -> None:
    (diff,) = blocks(README, "diff")
    assert sum(line.startswith("+") for line in diff.splitlines()) == 5
    (tmp_path / "plain.py").write_text(side(diff, "-"))
    (tmp_path / "script.py").write_text(side(diff, "+"))
    plain = alone("plain.py", cwd=tmp_path)
    assert plain.returncode == 0, plain.stderr
    assert float(re.findall(r"accuracy (\d+\.\d)%", plain.stdout)[0]) > 80
    done = mpirun(4, "script.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    accuracies = [float(value) for value in re.findall(r"accuracy (\d+\.\d)%", done.stdout)]
    assert len(accuracies) == 4
    assert min(accuracies) > 80


@pytest.mark.parametrize(
    "block", blocks(README, "python"), ids=["accumulation", "checkpoint", "own graph", "rows", "threads"]
)
def test_examples(block: str, tmp_path: Path) -> None:
    (tmp_path / "example.py").write_text(block)
    done = mpirun(2, "example.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout
    if "Checkpoints" in block:
        assert (tmp_path / "run" / "checkpoints" / "latest").read_text() == "step-00000100\n"
        again = mpirun(2, "example.py", cwd=tmp_path)
        assert sorted(again.stdout.splitlines()) == sorted(done.stdout.splitlines()), (
            "it goes on where it was: at the end"
        )


def test_the_algorithm_of_the_contributing_page(tmp_path: Path) -> None:
    """Its own doctest; ``test_plugins.py`` trains with it."""
    (block,) = blocks(CONTRIBUTING, "python")
    assert len(block.splitlines()) <= 80
    (tmp_path / "tracking.py").write_text(block)
    done = alone("-m", "doctest", "-v", "tracking.py", cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    assert re.search(r"[1-9] passed", done.stdout), done.stdout


def test_commands_are_spelled_right(tmp_path: Path) -> None:
    """Training commands of the README that have options and need no files, shortened to one epoch on two ranks."""
    commands = re.findall(r"^mpirun -np 16 python (-m mpidec\.train[^#\n]*)", README, flags=re.MULTILINE)
    files = ("runs/...", "--out", "--download", "package.module")
    shown = [command for command in commands if not any(one in command for one in files) and "--" in command]
    assert len(shown) >= 4
    for number, command in enumerate(shown[2:5]):
        arguments = [*command.split(), "--epochs", "1", "--batch-size", "64", "--out", str(tmp_path / str(number))]
        done = mpirun(2, *arguments, cwd=tmp_path)
        assert done.returncode == 0, (command, done.stderr)


def test_all_options_that_the_pages_show_are_known() -> None:
    commands = re.findall(r"^mpirun -np \d+ python -m mpidec\.train ([^#\n]*)", README + TRAINING, flags=re.MULTILINE)
    assert len(commands) >= 12
    for command in commands:
        if "runs/..." not in command:
            tyro.cli(Config, args=command.split())


def test_a_model_and_data_of_ones_own(tmp_path: Path) -> None:
    (block,) = blocks(TRAINING, "python")
    (tmp_path / "mine.py").write_text(block)
    (command,) = re.findall(
        r"^mpirun -np 16 python (-m mpidec\.train --data mine:data.*)", TRAINING, flags=re.MULTILINE
    )
    done = mpirun(4, *command.split(), "--epochs", "3", "--out", "run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["test_accuracy"] > 0.8


def test_commands_of_the_simulator_are_spelled_right() -> None:
    """Those of the README and of its page; ``test_simulate.py`` runs smaller ones."""
    texts = README + (ROOT / "docs" / "simulator.md").read_text()
    commands = re.findall(r"python -m mpidec\.simulate (\w+[^#\n`]*)", "\n".join(blocks(texts, "sh")))
    assert {command.split()[0] for command in commands} == set(COMMANDS)
    for command in commands:
        tyro.cli(any_of(COMMANDS), args=command.split())


def test_pictures_of_the_pages_are_there() -> None:
    for page in (ROOT / "docs").glob("*.md"):
        for picture in re.findall(r"!\[[^]]+\]\(([^)]+)\)", page.read_text()):
            assert (ROOT / "docs" / picture).read_bytes().startswith(b"\x89PNG"), picture


def test_tables_name_everything_there_is() -> None:
    for name in (*ALGORITHMS, *COMPRESSORS, *FAMILIES):
        assert f"`{name}`" in README, name
    for name in (*DATA, *MODELS):
        assert f"`{name}`" in TRAINING, name


def test_hostfiles_name_hosts_and_slots() -> None:
    for path in (ROOT / "hostfiles").iterdir():
        lines = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
        assert lines
        assert all(re.fullmatch(r"\S+ slots=\d+", line) for line in lines)
        assert f"--hostfile hostfiles/{path.name}" in path.read_text()
