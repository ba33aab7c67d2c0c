"""Rules that must land on the same parameters, and sums that are kept in place of copies."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from mpidec import Identity, RandomK, Rows, Step, Topology, algorithm
from support.golden import FOLDER, TOLERANCE, load
from support.problems import asymmetric
from support.rows import descend
from support.table import COMBINATIONS, LOCALS, TABLE, some

RING = Topology.named("ring", 5)
EXACT = {"rtol": 0, "atol": 1e-12}


def run(name: str, local: str = "nesterov", graph: Topology = RING, steps: int = 20, **options) -> Tensor:
    return descend(algorithm(name, **options), LOCALS[local], graph, steps)


@pytest.mark.parametrize("local", ["sgd", "nesterov", "adamw"])
@pytest.mark.parametrize("name", ["dcd", "ecd", "choco"])
def test_with_whole_values_the_hat_rules_are_dpsgd_combine_then_adapt(name: str, local: str) -> None:
    gamma = {"gamma": 1.0} if name == "choco" else {}
    mine = run(name, local, compressor=Identity(), **gamma)
    torch.testing.assert_close(mine, run("dpsgd", local, order="combine-then-adapt"), **EXACT)


@pytest.mark.parametrize("local", ["sgd", "nesterov", "adamw"])
def test_with_whole_values_deepsqueeze_is_dpsgd_adapt_then_combine(local: str) -> None:
    mine = run("deepsqueeze", local, compressor=Identity(), gamma=1.0)
    torch.testing.assert_close(mine, run("dpsgd", local), **EXACT)


@pytest.mark.parametrize("local", ["sgd", "nesterov"])
def test_local_sgd_of_period_1_is_allreduce_sgd(local: str) -> None:
    torch.testing.assert_close(run("local", local), run("allreduce", local), **EXACT)


def test_but_not_for_adam() -> None:
    assert (run("local", "adamw") - run("allreduce", "adamw")).abs().max() > 1e-3


@pytest.mark.parametrize("period", [1, 3])
def test_local_ef_sign_of_period_1_is_ef_sign_where_products_are_exact(period: int) -> None:
    mine = run("local-ef-sign", product="exact", period=period)
    assert torch.allclose(mine, run("ef-sign"), atol=1e-12) == (period == 1)


def test_with_whole_values_dgc_is_allreduce_sgd() -> None:
    own = {"momentum": 0.5, "nesterov": True, "weight_decay": 1e-3}
    mine = descend(algorithm("dgc", compressor=Identity(), **own), lambda p: torch.optim.SGD(p, lr=0.05), RING, 20)
    torch.testing.assert_close(mine, run("allreduce"), **EXACT)


@pytest.mark.parametrize("momentum", [0.0, 0.5])
def test_the_two_residuals_of_ef_sign_are_equal_while_the_rate_is_constant(momentum: float) -> None:
    own = {"momentum": momentum, "nesterov": momentum > 0, "weight_decay": 1e-3}
    plain = descend(algorithm("ef-sign", residual="direction", **own), lambda p: torch.optim.SGD(p, 0.1), RING, 20)
    paper = descend(algorithm("ef-sign"), lambda p: torch.optim.SGD(p, 0.1, **own), RING, 20)
    torch.testing.assert_close(plain, paper, rtol=0, atol=1e-10)


def test_and_differ_where_it_changes() -> None:
    """In the unit of the parameters, what was held back keeps its size when the rate falls."""

    def fading(parameters) -> torch.optim.Optimizer:
        optimizer = torch.optim.SGD(parameters, lr=0.1)
        optimizer.register_step_post_hook(lambda *_: optimizer.param_groups[0].update(lr=0.001))
        return optimizer

    paper, code = (descend(algorithm("ef-sign", residual=one), fading, RING, 2) for one in ("parameters", "direction"))
    assert (paper - code).abs().max() > 1e-3


def test_the_recorded_ef_sign_holds_for_both_residuals() -> None:
    paths = sorted(FOLDER.glob("ef_sign_sgd__*"))
    if not paths:
        pytest.skip("no recording of ef-sign in this folder")
    for golden in map(load, paths):
        own = {key: golden.hyper[key] for key in ("momentum", "nesterov", "weight_decay")}
        rule = algorithm("ef-sign", compressor=golden.compressor(), residual="direction", **own)
        x = golden.start()
        comm, parameter = Rows(golden.topology), torch.nn.Parameter(x)
        local = torch.optim.SGD([parameter], lr=golden.hyper["lr"])
        rule.compressor.bind(golden.sizes, golden.noise)
        rule.start(x, comm)
        with torch.no_grad():
            for t in range(1, max(golden.checkpoints) + 1):
                parameter.grad = torch.stack([golden.gradient(rank, t, x[rank]) for rank in range(golden.size)])
                rule.run(x, parameter.grad, comm, Step(t), local.step)
        torch.testing.assert_close(x, golden.checkpoints[max(golden.checkpoints)], rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize(("name", "compressor"), [(n, c) for n, c in COMBINATIONS if n in ("choco", "dcd")])
def test_the_kept_sum_is_that_of_the_copies(name: str, compressor: str) -> None:
    """After 200 steps too: mixed_i = sum_j W_ij x_hat_j."""
    graph, entry = asymmetric(5), TABLE[name].entry
    rule = algorithm(name, compressor=some(compressor, entry), **({"gamma": 0.1} if name == "choco" else {}))
    normalised = Topology.from_matrix(graph.matrix / graph.matrix.sum(1, keepdims=True), check=False)
    descend(rule, lambda p: torch.optim.SGD(p, lr=0.01), normalised, 200)
    expected = torch.tensor(normalised.matrix) @ rule.x_hat
    assert torch.isfinite(expected).all()
    torch.testing.assert_close(rule.mixed, expected, rtol=1e-12, atol=1e-12)


def test_resync_takes_the_drift_of_float32_away() -> None:
    drifts = {}
    for resync in (0, 500):
        rule = algorithm("choco", resync=resync)
        descend(rule, lambda p: torch.optim.SGD(p, lr=0.1), RING, 1000, dtype=torch.float32)
        expected = torch.tensor(RING.matrix) @ rule.x_hat.double()
        drifts[resync] = float((rule.mixed.double() - expected).abs().max())
    assert drifts[500] < 3e-7 < drifts[0]


@pytest.mark.parametrize("contraction", [True, False])
def test_ecd_moves_the_copies_by_increments_that_random_k_enlarges_where_it_is_unbiased(contraction: bool) -> None:
    rule, x = algorithm("ecd", compressor=RandomK(0.5, contraction)), torch.randn(5, 10, dtype=torch.float64)
    comm = Rows(RING)
    rule.compressor.bind([10], comm.noise)
    rule.start(x, comm)
    for t in range(1, 5):
        before, x_prev = rule.x_hat.clone(), x.clone()
        rule.run(x, x, comm, Step(t), lambda: x.mul_(0.9))
        # x is now what the paper calls new.
        wanted = (2 / t) * ((1 - t / 2) * x_prev + (t / 2) * x - before)
        moved = rule.x_hat - before
        assert ((moved != 0).sum(1) == 5).all()
        expected = torch.where(moved != 0, wanted * (1 if contraction else 2), 0)
        torch.testing.assert_close(moved, expected, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(rule.mixed, torch.tensor(RING.matrix) @ rule.x_hat, rtol=1e-10, atol=1e-10)
