"""Which combinations make sense, said once and in one sentence."""

from __future__ import annotations

from mpidec.compress.base import Compressor
from mpidec.compress.dense import Identity
from mpidec.errors import UserError
from mpidec.topology import Topology


def refuse_lossy(compressor: Compressor, rule: str, what: str) -> Compressor:
    """``compressor``, where it sends whole values; ``UserError`` for one that loses what ``rule`` never resends."""
    if not isinstance(compressor, Identity):
        raise UserError(
            f"{rule} sends its {what} once and keeps no memory of what {compressor!r} leaves out: "
            "use the compressor identity, fp16 or bf16, or the algorithm choco, which works with any"
        )
    return compressor


def refuse_changing(topology: Topology, rule: str) -> None:
    """Raise ``UserError`` for weights that change over time, under a rule that keeps sums of earlier messages."""
    if topology.period > 1:
        raise UserError(
            f"{rule} keeps a weighted sum of its neighbours' public copies, which is void once the weights change: "
            f"{topology.name} changes them with period {topology.period}, use a static topology"
        )
