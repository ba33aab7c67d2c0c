"""Which combinations make sense, said once and in one sentence."""

from __future__ import annotations

import torch

from mpidec.compress.base import Compressor
from mpidec.compress.dense import Identity
from mpidec.compress.sign import Sign
from mpidec.errors import UserError
from mpidec.optim.base import Algorithm
from mpidec.topology import Topology


def refuse_lossy(compressor: Compressor, rule: str, what: str) -> Compressor:
    """``compressor``, where it sends whole values; ``UserError`` for one that loses what ``rule`` never resends."""
    if not isinstance(compressor, Identity):
        other = "local-ef-sign, which remembers it" if rule == "local" else "choco, which works with any"
        raise UserError(
            f"{rule} sends its {what} once and keeps no memory of what {compressor!r} leaves out: "
            f"use the compressor identity, fp16 or bf16, or the algorithm {other}"
        )
    return compressor


def refuse_forgotten(compressor: Compressor, rule: str) -> Compressor:
    """``compressor``; ``UserError`` for signs under a ``rule`` that remembers entries, but not errors of values."""
    if isinstance(compressor, Sign):
        raise UserError(
            f"{rule} remembers the entries that it did not send, and {compressor!r} sends all of them wrongly: "
            "use the compressor top-k, random-k or an unbiased qsgd, or the algorithm ef-sign"
        )
    return compressor


def refuse_changing(topology: Topology, rule: str) -> None:
    """Raise ``UserError`` for weights that change over time, under a rule that keeps sums of earlier messages."""
    if topology.period > 1:
        raise UserError(
            f"{rule} keeps a weighted sum of its neighbours' public copies, which is void once the weights change: "
            f"{topology.name} changes them with period {topology.period}, use a static topology, or the algorithm "
            "dpsgd or deepsqueeze"
        )


def refuse_gamma(gamma: float) -> float:
    """``gamma``; ``UserError`` where it is no consensus step size."""
    if not 0 < gamma <= 1:
        raise UserError(f"gamma, the consensus step size, lies above 0 and is at most 1: got {gamma}")
    return gamma


def refuse_clip(clip: float | None) -> float | None:
    """``clip``; ``UserError`` where it is no norm to clip a gradient to."""
    if clip is not None and not 0 < clip < float("inf"):
        raise UserError(f"clip, which limits the norm of each gradient tensor, is above 0 and finite: got {clip}")
    return clip


def refuse_clip_norm(clip_norm: float | None, algorithm: Algorithm) -> None:
    """Raise ``UserError`` for a ``clip_norm`` that is no norm, or has no gradient to clip."""
    if clip_norm is None:
        return
    if not 0 < clip_norm < float("inf"):
        raise UserError(
            f"clip_norm, which limits the norm of the whole gradient, is above 0 and finite: got {clip_norm}"
        )
    if algorithm.owns_direction:
        raise UserError(
            f"{type(algorithm).__name__} makes the direction of the step itself, and leaves no gradient to clip before "
            "it: leave out clip_norm"
        )


def refuse_second_direction(local: torch.optim.Optimizer, algorithm: Algorithm) -> None:
    """Raise ``UserError`` for a ``local`` optimizer with a direction of its own, under a rule that owns it."""
    if not algorithm.owns_direction:
        return
    given = "is no torch.optim.SGD"
    if isinstance(local, torch.optim.SGD):
        settings = (
            (name, group[name]) for group in local.param_groups for name in ("momentum", "weight_decay", "maximize")
        )
        given = next((f"has {name}={value}" for name, value in settings if value), "")
    if given:
        rule = type(algorithm).__name__
        raise UserError(
            f"{rule} compresses the direction of the step, so momentum and weight decay are its own: the local "
            f"{type(local).__name__} {given}; wrap a plain torch.optim.SGD, and give them to {rule}"
        )


def unwise(algorithm: Algorithm, local: torch.optim.Optimizer) -> str:
    """Why this compressor, bound to its segments, or ``local`` may not do here, in one sentence; empty if they fit."""
    rule, C, needs = type(algorithm).__name__, algorithm.compressor, algorithm.needs
    if needs == "entries" and C.sparse:
        return f"{rule} forgets what it sends, and {C!r} sends it enlarged: it may diverge" if C.is_unbiased else ""
    if needs in ("unbiased", "entries") and not C.is_unbiased:
        return f"{rule} is analysed for unbiased compressors, and {C!r} is biased: the average of the models may drift"
    if needs != "anything" and not C.is_contraction:
        return f"{rule} with {C!r} may diverge: what that sends can be further off than if nothing were sent"
    return algorithm.unwise(local)
