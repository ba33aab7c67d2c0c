"""The table that every algorithm joins by a row: which tests run over it follows from what the row says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from mpidec import Algorithm, Compressor, Identity, Signum, TopK, algorithm, compressor
from mpidec.optim import ALGORITHMS, Entry

LOCALS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "nesterov": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.5, nesterov=True, weight_decay=1e-3),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.03),
    "signum": lambda p: Signum(p, lr=0.02),
    "signum-momentum": lambda p: Signum(p, lr=0.02, momentum=0.5, nesterov=True, weight_decay=1e-3),
    "small-sgd": lambda p: torch.optim.SGD(p, lr=0.02),
}
SOME = {"top-k": {"ratio": 0.5}, "random-k": {"ratio": 0.8}, "qsgd": {"bits": 8}}  # of compressors that take options


@dataclass(frozen=True)
class Row:
    """One algorithm, or one of its forms.

    ``locals``: the local optimizers it accepts, the usual one first. ``exact``: options under which one rank alone
    takes the local steps and nothing else. ``keeps_mean``: the exchange leaves the mean of x over the ranks.
    ``memory``: the buffer that remembers what was not sent.
    """

    name: str
    options: dict[str, Any] = field(default_factory=dict)
    compressor: Callable[[], Compressor] | None = None
    locals: tuple[str, ...] = ("nesterov", "sgd", "adamw")
    exact: dict[str, Any] | None = field(default_factory=dict)
    keeps_mean: bool = False
    memory: str = ""

    def rule(self, **other: Any) -> Algorithm:
        """A new one; ``other`` options overrule the row's, and a compressor may be given as what makes it."""
        options = {**self.options, "compressor": self.compressor, **other}
        if callable(options["compressor"]):
            options["compressor"] = options["compressor"]()
        return algorithm(self.name, **{name: value for name, value in options.items() if name != "compressor" or value})

    @property
    def entry(self) -> Entry:
        return ALGORITHMS[self.name]


DIRECT, PLAIN = {"momentum": 0.5, "nesterov": True, "weight_decay": 1e-3}, ("sgd",)
TABLE = {
    "allreduce": Row("allreduce"),
    "allreduce-bf16": Row("allreduce", compressor=lambda: Identity(torch.bfloat16), exact=None),
    "dgc": Row(
        "dgc",
        DIRECT,
        lambda: TopK(0.2),
        PLAIN,
        {"compressor": Identity, "momentum": 0, "nesterov": False, "weight_decay": 0},
        memory="v",
    ),
    "dgc-clip": Row("dgc", {**DIRECT, "clip": 0.5, "mask_momentum": False}, lambda: TopK(0.2), PLAIN, None, memory="v"),
    "dgc-warm-up": Row("dgc", DIRECT, lambda: TopK(0.05, warmup_epochs=3), PLAIN, None, memory="v"),
    "sign": Row("sign", DIRECT, locals=("small-sgd",), exact=None),
    "sign-mean": Row("sign", {"vote": "mean"}, locals=("small-sgd",), exact=None),
    "ef-sign": Row("ef-sign", exact={"compressor": Identity}, memory="e"),
    "ef-sign-direction": Row("ef-sign", {"residual": "direction", **DIRECT}, locals=PLAIN, exact=None, memory="e"),
    "local": Row("local", {"period": 3}),
    "post-local": Row("local", {"period": 3, "start_epoch": 1.0}),
    "local-sign": Row("local-sign", {"period": 3}, locals=("signum", "signum-momentum"), exact=None),
    "local-sign-exact": Row("local-sign", {"period": 3, "product": "exact"}, locals=("signum",), exact=None),
    "local-ef-sign": Row("local-ef-sign", {"period": 3}, exact=None, memory="e"),
    "local-ef-sign-exact": Row("local-ef-sign", {"period": 3, "product": "exact"}, exact=None, memory="e"),
    "local-ef-int8": Row(
        "local-ef-sign", {"period": 3, "direction": "int8", "product": "exact"}, locals=("sgd",), exact=None, memory="e"
    ),
    "dpsgd": Row("dpsgd", keeps_mean=True),
    "combine-then-adapt": Row("dpsgd", {"order": "combine-then-adapt"}, keeps_mean=True),
    "choco": Row("choco", keeps_mean=True),
    "choco-top-k": Row("choco", {"gamma": 0.1}, lambda: TopK(0.1), keeps_mean=True),
    "choco-resync": Row("choco", {"resync": 2}, keeps_mean=True),
    "dcd": Row("dcd", exact={"compressor": Identity}),
    "ecd": Row("ecd", exact={"compressor": Identity}),
    "ecd-top-k": Row("ecd", {}, lambda: TopK(0.7), exact={"compressor": Identity}),
    "deepsqueeze": Row("deepsqueeze", keeps_mean=True, memory="residual"),
    "naive": Row("naive", keeps_mean=True),
}
RULES = {name: row.rule for name, row in TABLE.items()}
ONE_EACH = {row.name: name for name, row in reversed(TABLE.items())}  # the first row of every algorithm
COMBINATIONS = [
    (name, one) for name, row in ((n, TABLE[n]) for n in ONE_EACH.values()) for one in row.entry.compressors
]


def some(name: str, entry: Entry) -> Compressor:
    """The compressor ``name`` in the form that an algorithm is analysed for, fine enough for all of them."""
    from mpidec.optim import SPARSE, wants_contraction

    options = dict(SOME.get(name, {}))
    if name in ("random-k", "qsgd"):
        options["contraction"] = wants_contraction(entry.needs, name in SPARSE)
    return compressor(name, **options)
