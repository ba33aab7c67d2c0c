"""The training algorithms and the optimizer that runs them. The names are importable without torch."""

from __future__ import annotations

import inspect
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, NamedTuple

from mpidec import plugins
from mpidec.compress import COMPRESSORS
from mpidec.names import canonical, construct, merged

if TYPE_CHECKING:
    from mpidec.optim.base import Algorithm

DENSE = ("identity", "fp16", "bf16")
SPARSE = ("top-k", "random-k")
# What may be chosen by name, the default first.
ORDERS = ("adapt-then-combine", "combine-then-adapt")  # of dpsgd
VOTES = ("majority", "mean")  # of sign
RESIDUALS = ("parameters", "direction")  # of ef-sign
PRODUCTS = ("separate", "exact")  # of local-sign and local-ef-sign
DIRECTIONS = ("signum", "int8")  # of local-ef-sign
CHOICES: dict[str, tuple[str, ...]] = {
    "order": ORDERS,
    "vote": VOTES,
    "residual": RESIDUALS,
    "product": PRODUCTS,
    "direction": DIRECTIONS,
}
PERIOD = 5  # steps between synchronisations; odd, since under local-sign an even number of them can cancel


class Entry(NamedTuple):
    """Where an algorithm stands, which compressors it can work with (the first is its default), and its own options.

    ``compressors`` is empty for a rule that has a message of its own. ``lr``: a learning rate to begin with. ``local``:
    the optimizer that takes its local step. ``central``, ``owns_direction`` and ``needs``: as the class says them; here
    for those who must know them without torch.
    """

    target: str
    compressors: tuple[str, ...]
    options: dict[str, Any]
    central: bool = False
    owns_direction: bool = False
    needs: str = "anything"
    lr: float = 0.1
    local: str = "mpidec.optim.sgd:SGD"


def _every(first: str) -> tuple[str, ...]:
    return first, *(name for name in COMPRESSORS if name != first)


_PERIODIC = {"period": PERIOD, "start_epoch": 0.0}

ALGORITHMS = {
    "allreduce": Entry("mpidec.optim.allreduce:AllReduce", DENSE, {}, central=True),
    "dgc": Entry(
        "mpidec.optim.dgc:DGC",
        (*SPARSE, "qsgd", *DENSE),
        {"clip": None, "mask_momentum": True},
        central=True,
        owns_direction=True,
        needs="entries",
    ),
    "sign": Entry("mpidec.optim.sign_sgd:SignSGD", (), {"vote": VOTES[0]}, central=True, owns_direction=True, lr=0.003),
    "ef-sign": Entry(
        "mpidec.optim.ef_sign_sgd:EFSignSGD",
        _every("sign"),
        {"residual": RESIDUALS[0]},
        central=True,
        needs="contraction",
    ),
    "local": Entry("mpidec.optim.local_sgd:LocalSGD", DENSE, _PERIODIC, central=True),
    "local-sign": Entry(
        "mpidec.optim.local_sign_sgd:LocalSignSGD",
        (),
        {**_PERIODIC, "product": PRODUCTS[0]},
        central=True,
        lr=0.003,
        local="mpidec.optim.signum:Signum",
    ),
    "local-ef-sign": Entry(
        "mpidec.optim.local_ef_sign_sgd:LocalEFSignSGD",
        (),
        {**_PERIODIC, "direction": DIRECTIONS[0], "product": PRODUCTS[0]},
        central=True,
    ),
    "dpsgd": Entry("mpidec.optim.dpsgd:DPSGD", DENSE, {"order": ORDERS[0]}),
    "choco": Entry("mpidec.optim.choco:CHOCO", _every("sign"), {"gamma": 0.3, "resync": 0}, needs="contraction"),
    "dcd": Entry("mpidec.optim.dcd:DCD", _every("qsgd"), {}, needs="unbiased"),
    "ecd": Entry("mpidec.optim.ecd:ECD", _every("qsgd"), {}, needs="unbiased"),
    "deepsqueeze": Entry("mpidec.optim.deepsqueeze:DeepSqueeze", _every("sign"), {"gamma": 0.3}, needs="contraction"),
    "naive": Entry("mpidec.optim.naive:Naive", _every("sign"), {"gamma": 0.3}),
}


def wants_contraction(needs: str, sparse: bool) -> bool:
    """Whether a rule with these ``needs`` is analysed for the contraction, not the unbiased form of a compressor."""
    return needs in ("anything", "contraction") or (needs == "entries" and sparse)


def known() -> list[str]:
    """The names of all algorithms, those of other packages last."""
    return merged(ALGORITHMS, plugins.names("algorithms"))


def entry(name: str) -> Entry:
    """What there is to know of the algorithm ``name``; that of another package is imported for it."""
    if name in ALGORITHMS:
        return ALGORITHMS[name]
    kind = plugins.load_class("algorithms", name, "mpidec.optim.base:Algorithm")
    takes_any = "compressor" in inspect.signature(kind).parameters
    return Entry("", _every("identity") if takes_any else (), {}, kind.central, kind.owns_direction, kind.needs)


def algorithm(name: str, **options: Any) -> Algorithm:
    """A new algorithm by name; ``options`` are those of its class.

    Raises ``UserError`` for an unknown name or option.
    """
    name = canonical("algorithm", name, known())
    if name in ALGORITHMS:
        kind = resolve_name(ALGORITHMS[name].target)
    else:
        kind = plugins.load_class("algorithms", name, "mpidec.optim.base:Algorithm")
    made: Algorithm = construct(name, kind, options)
    return made
