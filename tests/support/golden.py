"""Recorded trajectories of the published implementations, and the small problem that they were recorded on.

Everything is built from the fields of a file, so that any further file of the format runs too: ``MPIDEC_GOLDEN=DIR``.
"""

from __future__ import annotations

import gzip
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from mpidec import CHOCO, DPSGD, QSGD, Algorithm, AllReduce, Compressor, Identity, Sign, TopK, Topology

FOLDER = Path(os.environ.get("MPIDEC_GOLDEN", Path(__file__).parents[1] / "golden"))
TOLERANCE = 1e-10


@dataclass(frozen=True)
class Golden:
    """One recorded run."""

    name: str
    record: dict[str, Any]

    @property
    def size(self) -> int:
        return self.record["n"]

    @property
    def hyper(self) -> dict[str, Any]:
        return self.record["hyper"]

    @property
    def sizes(self) -> list[int]:
        return [int(torch.Size(shape).numel()) for _, shape in self.record["problem"]["shapes"]]

    @property
    def checkpoints(self) -> dict[int, Tensor]:
        """Step to the parameters of all ranks after it, shape ``(n, d)``."""
        return {int(step): torch.tensor(x, dtype=torch.float64) for step, x in self.record["params"].items()}

    @property
    def topology(self) -> Topology:
        return Topology.from_matrix(self.record["mixing_matrix"], check=False, name=self.record["topology"])

    @property
    def gossip(self) -> bool:
        return not (self.record["algorithm"] == "sgd" and self.record["is_centralized"])

    def start(self) -> Tensor:
        """Initial parameters of all ranks, shape ``(n, d)``."""
        rows = torch.tensor(self.record["initial_params"], dtype=torch.float64)
        return rows.expand(self.size, -1).clone()

    def algorithm(self) -> Algorithm:
        """The rule as it was recorded; skips the test where there is none yet."""
        name = self.record["algorithm"]
        if name == "sgd":
            rule: Algorithm = DPSGD() if self.gossip else AllReduce()
        elif name == "parallel_choco_v":
            rule = CHOCO(self.compressor(), gamma=self.hyper["consensus_stepsize"])
        else:
            pytest.skip(f"{name} does not exist yet")
        return rule

    def compressor(self) -> Compressor:
        """The compressor as it was recorded."""
        recorded = self.record["compressor"]
        kind = recorded["comm_op"]
        if kind == "sign":
            return Sign()
        if kind == "compress_top_k":
            compressor = TopK(1 - recorded["ratio"])
            assert list(compressor.plan(self.sizes).kept) == recorded["k_per_tensor"]
            return compressor
        if kind == "quantize_qsgd" and recorded["quantize_level"] == 32:
            return Identity()
        if kind == "quantize_qsgd":
            return QSGD(recorded["quantize_level"], contraction=recorded["is_biased"])
        pytest.skip(f"the compressor {kind} does not exist yet")

    def noise(self, like: Tensor) -> Tensor:
        """The fixed draw of the recording."""
        return torch.full_like(like, self.record["compressor"]["uniform_draw"])

    def local(self, parameters: list[Tensor]) -> torch.optim.SGD:
        """The recorded local step."""
        names = ("lr", "momentum", "nesterov", "dampening", "weight_decay")
        return torch.optim.SGD(parameters, **{name: self.hyper[name] for name in names})

    def gradient(self, rank: int, step: int, theta: Tensor) -> Tensor:
        """The gradient of ``rank`` in ``step`` (from 1) at its flat parameters ``theta``, shape ``(d,)``."""
        s = torch.arange(4, dtype=torch.float64).unsqueeze(1)
        i, o = torch.arange(5, dtype=torch.float64), torch.arange(2, dtype=torch.float64)
        x = torch.sin(1 + 0.7 * i + 1.3 * s + 2.1 * rank + 0.31 * i * s + 0.05 * step)
        y = torch.cos(0.5 + 1.1 * o + 0.6 * s + 0.8 * rank + 0.17 * o * s + 0.05 * step)
        with torch.enable_grad():
            theta = theta.detach().clone().requires_grad_()
            shapes = [shape for _, shape in self.record["problem"]["shapes"]]
            w1, b1, w2, b2 = (part.view(shape) for part, shape in zip(theta.split(self.sizes), shapes, strict=True))
            loss = ((torch.tanh(x @ w1.T + b1) @ w2.T + b2 - y) ** 2).sum() / 8
            (gradient,) = torch.autograd.grad(loss, theta)
        return gradient


def recordings() -> list[Any]:
    """Every file of the folder as a test case."""
    paths = sorted(path for path in FOLDER.iterdir() if "__" in path.name and ".json" in path.suffixes)
    return [pytest.param(path, id=path.name.split(".json")[0]) for path in paths]


def load(path: Path) -> Golden:
    """One recorded run."""
    return Golden(path.name, read(path))


def read(path: Path) -> dict[str, Any]:
    """A JSON file, gzipped or plain."""
    raw = path.read_bytes()
    return json.loads(gzip.decompress(raw) if path.suffix == ".gz" else raw)
