"""Every recorded trajectory, on the rows of one matrix."""

from pathlib import Path

import pytest
import torch

from mpidec import Rows, Step
from support.golden import TOLERANCE, load, recordings


@pytest.mark.parametrize("path", recordings())
def test_trajectory(path: Path) -> None:
    golden = load(path)
    rule, comm = golden.algorithm(), Rows(golden.topology)
    rule.compressor.bind(golden.sizes, golden.noise)
    x = golden.start()
    parameter = torch.nn.Parameter(x)
    local = golden.local([parameter])
    rule.start(x, comm)
    checkpoints = golden.checkpoints
    with torch.no_grad():
        for t in range(1, max(checkpoints) + 1):
            g = torch.stack([golden.gradient(rank, t, x[rank]) for rank in range(golden.size)])
            parameter.grad = g
            rule.run(x, g, comm, Step(t, t / golden.record["epoch_length"]), local.step)
            if t in checkpoints:
                torch.testing.assert_close(x, checkpoints[t], rtol=0, atol=TOLERANCE)
    assert checkpoints, "a recording without parameters proves nothing"
