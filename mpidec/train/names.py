"""The names of data sets, models and the like, importable without torch."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from mpidec.errors import UserError

DATA = {"digits": "mpidec.train.data:digits"}
MODELS = {"mlp": "mpidec.train.models:mlp", "logistic": "mpidec.train.models:logistic"}
DTYPES = ("float32", "float64")


@dataclass(frozen=True)
class Partition:
    """How samples are dealt to ranks; ``alpha`` is that of ``dirichlet``.

    >>> str(Partition.parse("Dirichlet:0.50"))
    'dirichlet:0.5'
    """

    kind: str = "iid"
    alpha: float | None = None

    @classmethod
    def parse(cls, text: str) -> Partition:
        """From ``iid``, ``sorted`` or ``dirichlet:ALPHA``. Raises ``UserError`` for anything else."""
        kind, colon, alpha = text.lower().partition(":")
        if kind in ("iid", "sorted") and not colon:
            return cls(kind)
        with suppress(ValueError):
            if kind == "dirichlet" and 1e-3 <= float(alpha) <= 1e6:
                return cls(kind, float(alpha))
        raise UserError(f"--partition is iid, sorted, or dirichlet:ALPHA with an ALPHA of 0.001 to 1e6: got {text!r}")

    def __str__(self) -> str:
        return self.kind if self.alpha is None else f"{self.kind}:{self.alpha:g}"
