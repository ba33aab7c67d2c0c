"""Random draws that every process and every backend can repeat: a hash of where the draw stands, and no state."""

from __future__ import annotations

import torch
from torch import Tensor

_WORD = 2**64
_BITS = 24  # of each draw: what a float32 holds exactly
_ROUNDS = 6  # of the Feistel network
SMALL = 2**14  # entries up to which sorting them all takes less time than the many small steps of a permutation


def uniform(seed: int, step: int, ranks: Tensor, like: Tensor) -> Tensor:
    """Draws in [0, 1) for the entries of ``like``, shape ``(d,)`` or ``(n, d)``, by (seed, step, rank, flat index).

    ``ranks``: int64, shape ``()`` or ``(n, 1)``. The flat index stands for segment and place within it. The mixer is
    SplitMix64's (Steele, Lea and Flood 2014, doi 10.1145/2660193.2660195) on wrapping 64-bit integers.
    """
    keys = _mix(_mix(ranks + _signed(seed * 0xD1342543DE82EF95)) + _signed(step * 0xDA942042E4DD58B5))
    index = torch.arange(1, like.shape[-1] + 1, device=like.device)
    words = _mix(keys.to(like.device) + index * _GOLDEN)
    draws: Tensor = _shift(words, 64 - _BITS).to(torch.float64) / 2**_BITS
    return draws.to(like.dtype)


def distinct(key: Tensor, number: int, count: int, size: int) -> Tensor:
    """``count`` of the indices ``0 .. size-1``, none twice, by ``key``, int64 of shape ``(..., 1)``, and ``number``.

    Small sets are sorted by hash. Large ones go through a keyed permutation, which costs ``count`` and not ``size``: a
    Feistel network (Luby and Rackoff 1988, doi 10.1137/0217022) on the next even power of two, walked on until it lands
    inside.
    """
    key = _mix(_mix(key) + number)
    if size <= SMALL:
        hashes = _mix(key + torch.arange(1, size + 1, device=key.device) * _GOLDEN)
        smallest: Tensor = hashes.topk(count, dim=-1, largest=False, sorted=True).indices
        return smallest
    half = -(-(size - 1).bit_length() // 2)
    start = torch.arange(count, device=key.device).expand(*key.shape[:-1], count)
    index, keys = _permuted(start, key, half), key.expand_as(start)
    while (outside := index >= size).any():
        index[outside] = _permuted(index[outside], keys[outside], half)
    return index


def _permuted(index: Tensor, key: Tensor, half: int) -> Tensor:
    """A permutation of the integers of ``2 * half`` bits."""
    mask: int = 2**half - 1
    left, right = index >> half, index & mask
    for number in range(1, _ROUNDS + 1):
        left, right = right, left ^ (_mix(key + right * _GOLDEN + number) & mask)
    permuted: Tensor = (left << half) | right
    return permuted


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


_GOLDEN = _signed(0x9E3779B97F4A7C15)
