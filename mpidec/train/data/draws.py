"""Draws that need no state: each batch has a seed of its own, so that a resumed run draws what the whole one does."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


def seed_of(seed: int, rank: int, epoch: int, batch: int) -> int:
    """A seed of 63 bits for the batch number ``batch`` of ``rank`` in ``epoch``."""
    return int(np.random.SeedSequence((seed, rank, epoch, batch)).generate_state(1, np.uint64)[0] >> np.uint64(1))


def generator_of(seed: int, rank: int, epoch: int, batch: int) -> torch.Generator:
    """A generator on the CPU that is seeded with ``seed_of`` the same numbers."""
    return torch.Generator().manual_seed(seed_of(seed, rank, epoch, batch))


def seed_all(seed: int) -> None:
    """Let torch, on all devices, numpy and ``random`` draw from ``seed``."""
    torch.manual_seed(seed)
    np.random.seed(seed % 2**32)
    random.seed(seed)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Let torch on the CPU, numpy and ``random`` draw from ``seed``, and go on afterwards as if nothing had been."""
    states = torch.get_rng_state(), np.random.get_state(), random.getstate()
    torch.default_generator.manual_seed(seed)  # that of the CPU alone
    np.random.seed(seed % 2**32)
    random.seed(seed)
    try:
        yield
    finally:
        torch.set_rng_state(states[0])
        np.random.set_state(states[1])
        random.setstate(states[2])
