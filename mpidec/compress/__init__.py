"""How a vector is written in bytes. The names are importable without torch; the classes come with the first use."""

from __future__ import annotations

from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from mpidec import plugins
from mpidec.names import canonical, construct, merged

if TYPE_CHECKING:
    from mpidec.compress.base import Compressor

COMPRESSORS = {
    "identity": "mpidec.compress.dense:Identity",
    "fp16": "mpidec.compress.dense:float16",
    "bf16": "mpidec.compress.dense:bfloat16",
    "top-k": "mpidec.compress.sparse:TopK",
    "random-k": "mpidec.compress.sparse:RandomK",
    "sign": "mpidec.compress.sign:Sign",
    "qsgd": "mpidec.compress.quantize:QSGD",
}
# What each takes, by option, with its default; the others take nothing.
OPTIONS: dict[str, dict[str, Any]] = {
    "top-k": {"ratio": 0.01, "warmup_epochs": 0.0},
    "random-k": {"ratio": 0.01, "warmup_epochs": 0.0, "contraction": True},
    "qsgd": {"bits": 8, "contraction": True},
}


def known() -> list[str]:
    """The names of all compressors, those of other packages last."""
    return merged(COMPRESSORS, plugins.names("compressors"))


def compressor(name: str, **options: Any) -> Compressor:
    """A new compressor by name; ``options`` are those of its class.

    Raises ``UserError`` for an unknown name or option.
    """
    name = canonical("compressor", name, known())
    if name in COMPRESSORS:
        kind = resolve_name(COMPRESSORS[name])
    else:
        kind = plugins.load_class("compressors", name, "mpidec.compress.base:Compressor")
    made: Compressor = construct(name, kind, options)
    return made
