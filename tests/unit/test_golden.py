"""Every recorded trajectory on the rows of one matrix, and one of each algorithm on threads."""

from pathlib import Path

import pytest
import torch

from mpidec import run_on_threads
from support.golden import TOLERANCE, load, recordings
from support.replay import on_ranks, on_rows, one_each


@pytest.mark.parametrize("path", recordings())
def test_rows(path: Path) -> None:
    golden, seen = load(path), 0
    for t, x in on_rows(golden):
        if t in golden.checkpoints:
            torch.testing.assert_close(x, golden.checkpoints[t], rtol=0, atol=TOLERANCE)
            seen += 1
    assert seen, "a recording without parameters proves nothing"


@pytest.mark.parametrize("path", one_each(), ids=lambda path: path.name.split(".json")[0])
def test_threads(path: Path) -> None:
    golden = load(path)
    run_on_threads(lambda world: on_ranks(world, golden, "mpi"), golden.size)
