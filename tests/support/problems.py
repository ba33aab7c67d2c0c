"""Small models and data with known properties."""

from __future__ import annotations

import threading

import torch
from torch import Tensor, nn

from mpidec import Network, Topology
from mpidec.transport.solo import Solo

BUILDING = threading.Lock()  # ranks that are threads share torch's generator


def net(seed: int = 0) -> nn.Sequential:
    """A small network, the same for the same seed."""
    with BUILDING:
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))


def batch(rank: int, step: int, samples: int = 4) -> tuple[Tensor, Tensor]:
    """What ``rank`` learns from in ``step``."""
    generator = torch.Generator().manual_seed(1000 * step + rank)
    inputs = torch.randn(samples, 6, generator=generator)
    return inputs, torch.randint(0, 3, (samples,), generator=generator)


def loss_of(model: nn.Module, rank: int, step: int, samples: int = 4) -> Tensor:
    """The mean loss of ``model`` on that batch, in the model's dtype."""
    inputs, labels = batch(rank, step, samples)
    dtype = next(model.parameters()).dtype
    return nn.functional.cross_entropy(model(inputs.to(dtype)).float(), labels)


def alone() -> Network:
    """A network of one rank, also where the tests themselves run on several."""
    return Network(Solo(), Topology.named("ring", 1))


def asymmetric(size: int) -> Topology:
    """Weights that are neither symmetric nor normalised, on a directed ring with chords: a transposed W shows."""
    W = torch.zeros(size, size, dtype=torch.float64)
    for i in range(size):
        W[i, i] += 0.5
        W[i, (i + 1) % size] += 0.3 + 0.01 * i
        if i % 2 == 0:
            W[i, (i + 2) % size] += 0.25
    return Topology.from_matrix(W.numpy(), check=False)
