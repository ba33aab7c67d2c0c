"""Random draws that every process and every backend can repeat: a hash of where the draw stands, and no state."""

from __future__ import annotations

import torch
from torch import Tensor

_WORD = 2**64
_BITS = 24  # of each draw: what a float32 holds exactly


def uniform(seed: int, step: int, ranks: Tensor, like: Tensor) -> Tensor:
    """Draws in [0, 1) for the entries of ``like``, shape ``(d,)`` or ``(n, d)``, by (seed, step, rank, flat index).

    ``ranks``: int64, shape ``()`` or ``(n, 1)``. The flat index stands for segment and place within it. The mixer is
    SplitMix64's (Steele, Lea and Flood 2014, doi 10.1145/2660193.2660195) on wrapping 64-bit integers.
    """
    keys = _mix(_mix(ranks + _signed(seed * 0xD1342543DE82EF95)) + _signed(step * 0xDA942042E4DD58B5))
    index = torch.arange(1, like.shape[-1] + 1, device=like.device)
    words = _mix(keys.to(like.device) + index * _signed(0x9E3779B97F4A7C15))
    draws: Tensor = _shift(words, 64 - _BITS).to(torch.float64) / 2**_BITS
    return draws.to(like.dtype)


def _mix(z: Tensor) -> Tensor:
    z = (z ^ _shift(z, 30)) * _signed(0xBF58476D1CE4E5B9)
    z = (z ^ _shift(z, 27)) * _signed(0x94D049BB133111EB)
    mixed: Tensor = z ^ _shift(z, 31)
    return mixed


def _shift(z: Tensor, bits: int) -> Tensor:
    """A logical shift to the right: torch's own repeats the sign bit."""
    shifted: Tensor = (z >> bits) & (2 ** (64 - bits) - 1)
    return shifted


def _signed(word: int) -> int:
    word %= _WORD
    return word - _WORD if word >= _WORD // 2 else word
