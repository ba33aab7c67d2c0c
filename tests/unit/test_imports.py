"""The floors of the house: imports only ever go down, and heavy libraries come late."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import mpidec
from mpidec.compress import OPTIONS
from mpidec.optim import ALGORITHMS

ROOT = Path(mpidec.__file__).parent
FLOORS = {
    "names": -1,
    "errors": -1,
    "version": -1,
    "launcher": -1,
    "plugins": -1,
    "spans": -1,
    "topology": 0,
    "flat": 0,
    "noise": 0,
    "compress": 0,
    "transport": 1,
    "communicator": 2,
    "rows": 2,
    "world": 2,
    "optim": 3,
    "consensus": 3,
    "train": 4,
    "folder": 4,
    "plots": 4,
    "report": 4,
    "simulate": 4,
    "bench": 4,
    "doctor": 4,
    "cli": 4,
}
MODULES = sorted(ROOT.rglob("*.py"))


def imported(path: Path) -> set[str]:
    """Names of all modules that a file imports anywhere, other than for type checking."""
    tree = ast.parse(path.read_text())
    checking = [n for n in ast.walk(tree) if isinstance(n, ast.If) and "TYPE_CHECKING" in ast.dump(n.test)]
    skipped = {id(inner) for block in checking for inner in ast.walk(block)}
    names: set[str] = set()
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
            if node.module == "mpidec" or node.module.startswith("mpidec."):
                names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names


def part(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_only_go_down(path: Path) -> None:
    if part(path) == "__init__":
        return
    own = FLOORS[part(path)]
    command = path.name == "__main__.py"  # a command may use the frame of commands, wherever it stands
    for name in imported(path):
        if name.startswith("mpidec."):
            other = name.split(".")[1]
            allowed = FLOORS.get(other, -1) <= own or (command and other == "cli")
            assert allowed, f"{path.relative_to(ROOT)} (floor {own}) imports {name}"


@pytest.mark.parametrize(
    ("library", "places"),
    [("mpi4py", {"transport/mpi.py"}), ("horovod", {"transport/horovod.py"})],
)
def test_one_file_for_each_transport_library(library: str, places: set[str]) -> None:
    users = {
        str(path.relative_to(ROOT)) for path in MODULES if any(name.split(".")[0] == library for name in imported(path))
    }
    assert users == places


@pytest.mark.parametrize(
    "statement",
    [
        "import mpidec",
        "import mpidec.optim, mpidec.compress, mpidec.train.config",
        "import mpidec.train.__main__",
        "import mpidec.train.checkpoint.__main__",
        "import mpidec.topology.__main__",
    ],
)
def test_names_and_options_come_without_torch_and_mpi(statement: str) -> None:
    check = "import sys; print(sorted({'torch', 'mpi4py', 'horovod', 'networkx', 'sklearn'} & set(sys.modules)))"
    shown = subprocess.run([sys.executable, "-c", f"{statement}; {check}"], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"


@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_table_says_what_the_class_says(name: str) -> None:
    rule, entry = mpidec.algorithm(name), ALGORITHMS[name]
    assert (rule.central, rule.owns_direction, rule.needs) == (entry.central, entry.owns_direction, entry.needs)
    parameters = inspect.signature(type(rule)).parameters
    assert ("compressor" in parameters) == bool(entry.compressors)
    direction = {"momentum", "nesterov", "weight_decay"} if hasattr(rule, "momentum") else set()
    assert set(parameters) - {"compressor"} == set(entry.options) | direction
    assert all(parameters[option].default == default for option, default in entry.options.items())


@pytest.mark.parametrize("name", OPTIONS)
def test_the_options_of_a_compressor_are_those_of_its_class(name: str) -> None:
    parameters = inspect.signature(type(mpidec.compressor(name))).parameters
    assert set(parameters) - {"warmup_ratios"} == set(OPTIONS[name])
    assert all(parameters[option].default == default for option, default in OPTIONS[name].items())


@pytest.mark.parametrize("name", ALGORITHMS)
def test_an_algorithm_is_a_file_of_80_lines(name: str) -> None:
    path = ROOT.parent / (ALGORITHMS[name].target.split(":")[0].replace(".", "/") + ".py")
    assert len(path.read_text().splitlines()) <= 80


def test_every_public_name_is_there() -> None:
    for name in mpidec.__all__:
        assert getattr(mpidec, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = mpidec.nothing


TESTS = sorted(Path(__file__).parents[1].rglob("*.py"))


@pytest.mark.parametrize("path", MODULES + TESTS, ids=lambda path: "/".join(path.parts[-3:]))
def test_one_idea_per_file(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 250
