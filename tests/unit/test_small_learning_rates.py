"""Signs in float32 when a step is not much larger than the rounding of the parameters.

``pytest -rP tests/unit/test_small_learning_rates.py`` shows the share of wrong signs as a table.
"""

from __future__ import annotations

import pytest
import torch
from tabulate import tabulate
from torch import Tensor

from mpidec import Algorithm, Rows, Signum, Step, Topology, algorithm

N, D = 4, 50_000
DIRECTION = {"momentum": 0.9, "nesterov": True, "weight_decay": 1e-4}
RATES = (1e-3, 1e-5, 1e-7)


def gradients(t: int) -> Tensor:
    """Of 1e-5 to 1, as in a network: float32 values, the same for both precisions."""
    generator = torch.Generator().manual_seed(t)
    size = 10 ** (-5 * torch.rand(N, D, generator=generator, dtype=torch.float64))
    return (size * torch.randn(N, D, generator=generator, dtype=torch.float64)).float()


def sent_signs(rule: Algorithm, lr: float, dtype: torch.dtype) -> Tensor:
    """Whether each entry of each message of three steps was handed over as positive, shape ``(3, N, D)``."""
    x = torch.randn(N, D, generator=torch.Generator().manual_seed(0)).to(dtype)
    comm, signs, encode = Rows(Topology.named("complete", N)), [], rule.compressor.encode
    own = {} if rule.owns_direction else DIRECTION
    parameter = torch.nn.Parameter(x)
    local = torch.optim.SGD([parameter], lr=lr, **own)

    def spy(u: Tensor):
        signs.append(u >= 0)
        return encode(u)

    rule.compressor.encode = spy
    with torch.no_grad():
        rule.start(x, comm)
        for t in (1, 2, 3):
            parameter.grad = gradients(t).to(dtype)
            rule.run(x, parameter.grad, comm, Step(t), local.step)
    return torch.stack(signs)


def wrong(make, lr: float) -> float:
    """The share of signs that float32 sends other than float64 does."""
    one, other = sent_signs(make(), lr, torch.float32), sent_signs(make(), lr, torch.float64)
    return float((one != other).double().mean())


RULES = {
    "sign": lambda: algorithm("sign", **DIRECTION),
    "ef-sign, residual=direction": lambda: algorithm("ef-sign", residual="direction", **DIRECTION),
    "ef-sign, residual=parameters": lambda: algorithm("ef-sign"),
}


def test_rules_on_directions_send_no_wrong_sign() -> None:
    shares = {name: [wrong(make, lr) for lr in RATES] for name, make in RULES.items()}
    rows = [(name, *(f"{share:.3%}" for share in row)) for name, row in shares.items()]
    print(tabulate(rows, headers=("wrong signs at a learning rate of", *(f"{lr:g}" for lr in RATES))))
    assert shares["sign"] == [0, 0, 0]
    assert max(shares["ef-sign, residual=direction"]) < 1e-5
    assert shares["ef-sign, residual=parameters"][-1] > 0.1, "otherwise this test could not fail"


@pytest.mark.parametrize("lr", RATES)
def test_signum_takes_the_right_direction(lr: float) -> None:
    """From 0, where no rounding of x hides it."""
    moves = []
    for dtype in (torch.float32, torch.float64):
        p = torch.nn.Parameter(torch.zeros(N, D, dtype=dtype))
        optimizer = Signum([p], lr=lr, **DIRECTION)
        for t in (1, 2, 3):
            p.grad = gradients(t).to(dtype)
            optimizer.step()
        moves.append((p.data / lr).round())
    assert torch.equal(moves[0].double(), moves[1])
