"""Random draws: a function of where they stand, and of nothing else."""

from __future__ import annotations

import pytest
import torch

from mpidec.noise import uniform

LIKE = torch.zeros(10_000)


def draws(seed: int = 1, step: int = 1, rank: int = 0) -> torch.Tensor:
    return uniform(seed, step, torch.tensor(rank), LIKE)


def test_pinned() -> None:
    """Another machine, torch or backend must draw the same: these are SplitMix64's, computed with Python's integers."""

    def mix(z: int) -> int:
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
        return z ^ (z >> 31)

    seed, step, rank = 5, 7, 3
    key = mix((mix((rank + seed * 0xD1342543DE82EF95) % 2**64) + step * 0xDA942042E4DD58B5) % 2**64)
    expected = [(mix((key + i * 0x9E3779B97F4A7C15) % 2**64) >> 40) / 2**24 for i in range(1, 6)]
    assert uniform(seed, step, torch.tensor(rank), torch.zeros(5, dtype=torch.float64)).tolist() == expected


@pytest.mark.parametrize("other", [draws(seed=2), draws(step=2), draws(rank=1), draws().flip(0)])
def test_seed_step_rank_and_place_all_matter(other: torch.Tensor) -> None:
    mine = draws()
    assert torch.equal(mine, draws())
    assert (mine == other).float().mean() < 0.001
    assert abs(float(torch.corrcoef(torch.stack([mine, other]))[0, 1])) < 0.05


def test_uniform_in_the_unit_interval() -> None:
    mine = draws()
    assert mine.min() >= 0
    assert mine.max() < 1
    histogram = torch.histc(mine, 10, 0, 1)
    assert histogram.min() > 850
    assert histogram.max() < 1150


def test_rows_are_ranks() -> None:
    rows = uniform(1, 1, torch.arange(3).unsqueeze(-1), torch.zeros(3, 10_000))
    assert all(torch.equal(rows[rank], draws(rank=rank)) for rank in range(3))
