"""How a vector is written in bytes. The names are importable without torch; the classes come with the first use."""

from __future__ import annotations

from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from mpidec.names import canonical

if TYPE_CHECKING:
    from mpidec.compress.base import Compressor

COMPRESSORS = {
    "identity": "mpidec.compress.dense:Identity",
    "fp16": "mpidec.compress.dense:float16",
    "bf16": "mpidec.compress.dense:bfloat16",
    "top-k": "mpidec.compress.sparse:TopK",
    "sign": "mpidec.compress.sign:Sign",
    "qsgd": "mpidec.compress.quantize:QSGD",
}
# What each takes, by option, with its default; the others take nothing.
OPTIONS: dict[str, dict[str, Any]] = {"top-k": {"ratio": 0.01}, "qsgd": {"bits": 8, "contraction": True}}


def compressor(name: str, **options: Any) -> Compressor:
    """A new compressor by name; ``options`` are those of its class.

    Raises ``UserError`` for an unknown name.
    """
    made: Compressor = resolve_name(COMPRESSORS[canonical("compressor", name, COMPRESSORS)])(**options)
    return made
