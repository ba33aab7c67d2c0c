"""The whole table on rows: every local optimizer, every compressor, and what each rule promises."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from mpidec import Topology
from mpidec.optim import ALGORITHMS
from support.rows import descend, targets
from support.table import COMBINATIONS, LOCALS, ONE_EACH, TABLE, some

SIZE = 4
DIVERGING = [("ecd", "sign")]  # biased, and extrapolated by t / 2


def graph_of(name: str, size: int = SIZE) -> Topology:
    return Topology.named("complete" if TABLE[name].entry.central else "ring", size)


def test_every_algorithm_has_a_row() -> None:
    assert set(ONE_EACH) == set(ALGORITHMS)


@pytest.mark.parametrize(("name", "local"), [(name, local) for name, row in TABLE.items() for local in row.locals])
def test_every_local_optimizer_comes_near_the_solution(name: str, local: str) -> None:
    x = descend(TABLE[name].rule(), LOCALS[local], graph_of(name), 150)
    goal = targets(SIZE).mean(0)
    assert (x.mean(0) - goal).norm() < 0.25 * goal.norm()
    assert (x - x.mean(0)).norm() < goal.norm()


@pytest.mark.parametrize(("name", "compressor"), COMBINATIONS)
def test_every_compressor_comes_near_the_solution(name: str, compressor: str) -> None:
    row = TABLE[name]
    x = descend(row.rule(compressor=some(compressor, row.entry)), LOCALS["sgd"], graph_of(name), 100)
    goal = targets(SIZE).mean(0)
    near = bool((x.mean(0) - goal).norm() < 0.25 * goal.norm())
    assert near != ((name, compressor) in DIVERGING)


ROUNDED = [("dpsgd", "fp16"), ("dpsgd", "bf16")]  # it sends the models themselves, and a 16-bit wire rounds them


@pytest.mark.parametrize("family", ["ring", "expander", "chain", "star"])
@pytest.mark.parametrize(
    ("name", "compressor"), [one for one in COMBINATIONS if TABLE[one[0]].keeps_mean and one not in ROUNDED]
)
def test_the_exchange_keeps_the_mean(name: str, compressor: str, family: str) -> None:
    def seen(t: int, before: Tensor, stepped: Tensor, after: Tensor) -> None:
        torch.testing.assert_close(after.mean(0), stepped.mean(0), rtol=0, atol=1e-12)

    row = TABLE[name]
    descend(row.rule(compressor=some(compressor, row.entry)), LOCALS["nesterov"], Topology.named(family, 7), 15, seen)


@pytest.mark.parametrize("name", ["dcd", "ecd"])
def test_a_biased_compressor_moves_the_mean_under_dcd_and_ecd(name: str) -> None:
    """So that the test above is known to be able to fail."""
    drift = []

    def seen(t: int, before: Tensor, stepped: Tensor, after: Tensor) -> None:
        drift.append(float((after.mean(0) - stepped.mean(0)).abs().max()))

    descend(TABLE[name].rule(compressor=some("sign", TABLE[name].entry)), LOCALS["sgd"], graph_of(name), 5, seen)
    assert max(drift) > 1e-3


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", [name for name, row in TABLE.items() if row.entry.central])
def test_replicas_of_the_central_family_are_bit_equal(name: str, dtype: torch.dtype) -> None:
    row = TABLE[name]
    for compressor in row.entry.compressors or (None,):
        other = {"compressor": some(compressor, row.entry)} if compressor else {}
        x = descend(row.rule(**other), LOCALS[row.locals[0]], graph_of(name), 12, dtype=dtype)
        assert all(torch.equal(one, x[0]) for one in x), compressor


@pytest.mark.parametrize("size", [1, 2, 3, 8])
@pytest.mark.parametrize("name", TABLE)
def test_every_rule_is_valid_at_every_size(name: str, size: int) -> None:
    row = TABLE[name]
    x = descend(row.rule(), LOCALS[row.locals[0]], graph_of(name, size), 60)
    goal = targets(size).mean(0)
    assert (x.mean(0) - goal).norm() < 0.6 * goal.norm()
