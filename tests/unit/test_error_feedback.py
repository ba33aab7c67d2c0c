"""What an error memory promises: nothing is lost, only late."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from mpidec import Topology, algorithm
from support.rows import D, descend, targets
from support.table import LOCALS, TABLE, some

RING = Topology.named("ring", 5)


def fed(name: str, before: Tensor, stepped: Tensor, t: int) -> Tensor:
    """What a rule hands to its compressor in step ``t``, without the residual."""
    if name == "deepsqueeze":
        return stepped
    if name == "ef-sign":
        return before - stepped
    return before - targets(before.shape[0])  # dgc: the gradient, where it has neither momentum nor weight decay


REMEMBERED = [(name, one) for name in ("deepsqueeze", "ef-sign") for one in ("top-k", "random-k", "sign", "qsgd")]


@pytest.mark.parametrize(("name", "compressor"), [*REMEMBERED, ("dgc", "top-k"), ("dgc", "random-k")])
def test_input_and_old_residual_are_what_is_sent_and_the_new_residual(name: str, compressor: str) -> None:
    row = TABLE[name]
    C = some(compressor, row.entry)
    rule = algorithm(name, compressor=C)
    sent, residuals = [], [torch.zeros(5, D, dtype=torch.float64)]
    encode = C.encode

    def spy(x: Tensor):
        message = encode(x)
        out = torch.zeros_like(x)
        C.add_to(out, message)
        sent.append(out)
        return message

    C.encode = spy

    def seen(t: int, before: Tensor, stepped: Tensor, after: Tensor) -> None:
        residuals.append(getattr(rule, row.memory).clone())
        torch.testing.assert_close(
            fed(name, before, stepped, t) + residuals[-2], sent[-1] + residuals[-1], rtol=0, atol=1e-12
        )

    descend(rule, LOCALS["sgd"], RING, 10, seen)
    assert any(residual.any() for residual in residuals)


@pytest.mark.parametrize("product", ["separate", "exact"])
@pytest.mark.parametrize("direction", ["signum", "int8"])
def test_local_ef_sign_remembers_what_its_own_message_leaves_out(direction: str, product: str) -> None:
    rule = algorithm("local-ef-sign", period=2, direction=direction, product=product)
    balance = []

    def seen(t: int, before: Tensor, stepped: Tensor, after: Tensor) -> None:
        balance.append((rule.e.clone(), rule.c.clone(), stepped))

    descend(rule, lambda p: torch.optim.SGD(p, lr=0.02), RING, 8, seen)
    for (old, c, _), (new, moved, x) in zip(balance[1::2], balance[3::2], strict=False):
        # What all ranks remember falls short of what they wanted by what moved; exactly so where products are exact.
        gap = ((c - x + old) - new).mean(0) - (c - moved)[0]
        assert (gap.abs().max() < 1e-12) == (product == "exact")
