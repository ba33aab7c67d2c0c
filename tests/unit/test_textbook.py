"""The gossip rules in the form of their papers, every public copy kept, under weights that forgive no mistake.

The weights are asymmetric and their rows do not sum to 1, so a transposed, normalised or misplaced weight shows.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from mpidec import DPSGD, QSGD, Compressor, Identity, RandomK, Sign, TopK, algorithm
from support.problems import asymmetric
from support.rows import SIZES, D, descend, targets

N, STEPS, LR, GAMMA = 5, 6, 0.05, 0.4
GRAPH = asymmetric(N)
W = GRAPH.matrix.tolist()
COMPRESSORS = {
    "identity": Identity,
    "top-k": lambda: TopK(0.3),
    "sign": Sign,
    "qsgd": lambda: QSGD(3, contraction=False),
}
START = torch.randn(N, D, generator=torch.Generator().manual_seed(3), dtype=torch.float64)


def mixed(rank: int, vectors: list[Tensor]) -> Tensor:
    """sum_j W[rank][j] vectors[j], spelled out."""
    out = torch.zeros(D, dtype=torch.float64)
    for j in range(N):
        out += W[rank][j] * vectors[j]
    return out


def stepped(x: Tensor, rank: int) -> Tensor:
    return x - LR * (x - targets(N)[rank])


def dpsgd(x: list[Tensor], state: dict, t: int, C: Callable[[Tensor], Tensor]) -> list[Tensor]:
    y = [stepped(x[i], i) for i in range(N)]
    return [mixed(i, y) for i in range(N)]


def combine_then_adapt(x: list[Tensor], state: dict, t: int, C: Callable[[Tensor], Tensor]) -> list[Tensor]:
    return [mixed(i, x) + stepped(x[i], i) - x[i] for i in range(N)]


def choco(x: list[Tensor], state: dict, t: int, C: Callable[[Tensor], Tensor]) -> list[Tensor]:
    hats = state.setdefault("hats", [torch.zeros(D, dtype=torch.float64) for _ in range(N)])
    new = [stepped(x[i], i) + GAMMA * (mixed(i, hats) - hats[i]) for i in range(N)]
    state["hats"] = [hats[i] + C(new[i] - hats[i]) for i in range(N)]
    return new


def dcd(x: list[Tensor], state: dict, t: int, C: Callable[[Tensor], Tensor]) -> list[Tensor]:
    h = [mixed(i, x) + stepped(x[i], i) - x[i] for i in range(N)]
    return [x[i] + C(h[i] - x[i]) for i in range(N)]


def ecd(x: list[Tensor], state: dict, t: int, C: Callable[[Tensor], Tensor]) -> list[Tensor]:
    hats = state.setdefault("hats", list(x))
    new = [mixed(i, hats) + stepped(x[i], i) - x[i] for i in range(N)]
    coded = [C((1 - t / 2) * x[i] + (t / 2) * new[i]) for i in range(N)]
    moved = [(1 - 2 / t) * hats[i] + (2 / t) * coded[i] for i in range(N)]
    if state["sparse"]:
        moved = [torch.where(coded[i] != 0, moved[i], hats[i]) for i in range(N)]
    state["hats"] = moved
    return new


def deepsqueeze(x: list[Tensor], state: dict, t: int, C: Callable[[Tensor], Tensor]) -> list[Tensor]:
    e = state.setdefault("e", [torch.zeros(D, dtype=torch.float64) for _ in range(N)])
    y = [stepped(x[i], i) for i in range(N)]
    v = [y[i] + e[i] for i in range(N)]
    coded = [C(one) for one in v]
    state["e"] = [v[i] - coded[i] for i in range(N)]
    return [y[i] + GAMMA * (mixed(i, coded) - coded[i]) for i in range(N)]


def coder(C: Compressor) -> Callable[[Tensor], Tensor]:
    C.bind(SIZES, lambda like: torch.full_like(like, 0.5))

    def code(u: Tensor) -> Tensor:
        out = torch.zeros_like(u)
        C.add_to(out, C.encode(u))
        return out

    return code


@pytest.mark.parametrize("compressor", COMPRESSORS)
@pytest.mark.parametrize("rule", [choco, dcd, ecd, deepsqueeze])
def test_compressed_rules(rule: Callable, compressor: str) -> None:
    options = {"gamma": GAMMA} if rule in (choco, deepsqueeze) else {}
    mine = algorithm(rule.__name__, compressor=COMPRESSORS[compressor](), **options)
    lands_on(mine, rule, COMPRESSORS[compressor]())


@pytest.mark.parametrize("rule", [dpsgd, combine_then_adapt])
def test_dpsgd(rule: Callable) -> None:
    lands_on(DPSGD(order=DPSGD().order if rule is dpsgd else "combine-then-adapt"), rule, Identity())


def lands_on(mine, rule: Callable, C: Compressor) -> None:
    code, state, x = coder(C), {"sparse": C.sparse}, list(START)
    for t in range(1, STEPS + 1):
        x = rule(x, state, t, code)
    bind = mine.compressor.bind
    mine.compressor.bind = lambda sizes, noise: bind(sizes, lambda like: torch.full_like(like, 0.5))
    found = descend(mine, lambda p: torch.optim.SGD(p, lr=LR), GRAPH, STEPS, start=START)
    torch.testing.assert_close(found, torch.stack(x), rtol=1e-11, atol=1e-11)


def test_random_k_sends_different_entries_in_every_step_and_from_every_rank() -> None:
    seen = []
    rule = algorithm("choco", compressor=RandomK(0.2), gamma=0.1)
    encode = rule.compressor.encode

    def spy(x: Tensor):
        message = encode(x)
        seen.append(message.support)
        return message

    rule.compressor.encode = spy
    descend(rule, lambda p: torch.optim.SGD(p, lr=0.1), GRAPH, 4)
    supports = {tuple(row.sort().values.tolist()) for step in seen for row in step}
    assert len(supports) > 15, "of 20"
