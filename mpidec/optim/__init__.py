"""The training algorithms and the optimizer that runs them. The names are importable without torch."""

from __future__ import annotations

from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, NamedTuple

from mpidec.compress import COMPRESSORS
from mpidec.names import canonical

if TYPE_CHECKING:
    from mpidec.optim.base import Algorithm

DENSE = ("identity", "fp16", "bf16")
ORDERS = ("adapt-then-combine", "combine-then-adapt")  # of dpsgd, the default first


class Entry(NamedTuple):
    """Where an algorithm stands, which compressors it can work with (the first is its default), and its own options.

    ``central``: as the class says it; here for those who must know it without torch.
    """

    target: str
    compressors: tuple[str, ...]
    options: dict[str, Any]
    central: bool = False


ALGORITHMS = {
    "allreduce": Entry("mpidec.optim.allreduce:AllReduce", DENSE, {}, central=True),
    "dpsgd": Entry("mpidec.optim.dpsgd:DPSGD", DENSE, {"order": ORDERS[0]}),
    "choco": Entry("mpidec.optim.choco:CHOCO", ("sign", *(c for c in COMPRESSORS if c != "sign")), {"gamma": 0.3}),
}


def algorithm(name: str, **options: Any) -> Algorithm:
    """A new algorithm by name; ``options`` are those of its class.

    Raises ``UserError`` for an unknown name.
    """
    made: Algorithm = resolve_name(ALGORITHMS[canonical("algorithm", name, ALGORITHMS)].target)(**options)
    return made
