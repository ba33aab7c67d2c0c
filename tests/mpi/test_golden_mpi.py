"""Recorded trajectories on real ranks, bit-equal to rows where messages are summed in rank order."""

from pathlib import Path

import pytest
import torch

from mpidec import Network, Rows, Step, World
from support.golden import FOLDER, TOLERANCE, load

CASES = (
    ("sgd__ring4__none__m0.9n", "mpi"),
    ("sgd__complete4__none__m0.9n", "mpi"),
    ("sgd__complete4__none__m0.9n", "horovod"),
    ("parallel_choco_v__ring4__sign__m0.9n", "mpi"),
    ("parallel_choco_v__ring4__qsgd4__m0", "mpi"),
    ("parallel_choco_v__complete4__topk0.9__m0.9n", "mpi"),
)


@pytest.mark.mpi(min_size=4)
@pytest.mark.parametrize(("case", "collectives"), CASES)
def test_trajectory(world: World, case: str, collectives: str) -> None:
    golden = load(_file(case))
    if collectives == "horovod":
        pytest.importorskip("horovod.torch", reason="Horovod is not installed")
    if world.size != golden.size:
        pytest.skip(f"recorded on {golden.size} ranks")
    comm = Network(world.transport, golden.topology, world.collectives(collectives))
    rule, rows_rule, rows = golden.algorithm(), golden.algorithm(), Rows(golden.topology)
    for one in (rule, rows_rule):
        one.compressor.bind(golden.sizes, golden.noise)
    matrix = golden.start()
    x = matrix[world.rank].clone()
    local, rows_local = golden.local([torch.nn.Parameter(x)]), golden.local([torch.nn.Parameter(matrix)])
    rule.start(x, comm)
    rows_rule.start(matrix, rows)
    checkpoints = golden.checkpoints
    with torch.no_grad():
        for t in range(1, max(checkpoints) + 1):
            step = Step(t, t / golden.record["epoch_length"])
            g = golden.gradient(world.rank, t, x)
            local.param_groups[0]["params"][0].grad = g
            rule.run(x, g, comm, step, local.step)
            gradients = torch.stack([golden.gradient(rank, t, matrix[rank]) for rank in range(golden.size)])
            rows_local.param_groups[0]["params"][0].grad = gradients
            rows_rule.run(matrix, gradients, rows, step, rows_local.step)
            if golden.gossip:
                assert torch.equal(x, matrix[world.rank])
            if t in checkpoints:
                torch.testing.assert_close(x, checkpoints[t][world.rank], rtol=0, atol=TOLERANCE)


def _file(case: str) -> Path:
    path = next((path for path in FOLDER.iterdir() if path.name.split(".json")[0] == case), None)
    if path is None:
        pytest.skip(f"{case} is not among the recordings of {FOLDER}")
    return path
