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

from mpidec import QSGD, Algorithm, Compressor, Identity, Sign, Signum, TopK, Topology, algorithm
from mpidec.optim import ALGORITHMS

FOLDER = Path(os.environ.get("MPIDEC_GOLDEN", Path(__file__).parents[1] / "golden"))
TOLERANCE = 1e-10
NAMES = {
    "parallel_choco_v": "choco",
    "dcd_psgd": "dcd",
    "ecd_psgd": "ecd",
    "deep_squeeze": "deepsqueeze",
    "dgc": "dgc",
    "sign_sgd": "sign",
    "ef_sign_sgd": "ef-sign",
    "local_sgd": "local",
    "local_sign_sgd": "local-sign",
    "local_ef_sign_sgd": "local-ef-sign",
    "local_ef_sgd": "local-ef-sign",
}
OWN_DIRECTION = [name for name, entry in ALGORITHMS.items() if entry.owns_direction]


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

    @property
    def bit_equal(self) -> bool:
        """Whether every sum runs in rank order, on all backends: what an all-reduce does not promise."""
        return self.gossip and not self.record["algorithm"].startswith("local")

    def algorithm(self) -> Algorithm:
        """The rule as it was recorded."""
        name = self.record["algorithm"]
        if name == "sgd":
            return algorithm("dpsgd" if self.gossip else "allreduce")
        return algorithm(NAMES[name], **self._options(name))

    def _options(self, name: str) -> dict[str, Any]:
        hyper, options = self.hyper, {}
        if name.startswith("local"):
            options = {"period": hyper["local_step"], "start_epoch": hyper["turn_on_local_step_from"]}
        elif name != "sign_sgd":
            options = {"compressor": self.compressor()}
        if "consensus_stepsize" in hyper:
            options["gamma"] = hyper["consensus_stepsize"]
        if name == "local_ef_sgd":
            options["direction"] = "int8" if "8 bit" in self.record["direction_exchange"] else "signum"
        if name == "sign_sgd":
            options["vote"] = "majority" if hyper["majority_vote"] else "mean"
        if name == "dgc":
            options |= {"mask_momentum": hyper["mask_momentum"], "clip": hyper["clip_grad_val"]}
            if not hyper["clip_grad"]:
                options["clip"] = None
        if NAMES[name] in OWN_DIRECTION:
            options |= {key: hyper[key] for key in ("momentum", "nesterov", "weight_decay")}
        return options

    def compressor(self) -> Compressor:
        """The compressor as it was recorded."""
        recorded, hyper = self.record["compressor"], self.hyper
        kind = recorded["comm_op"]
        if kind == "sign":
            return Sign()
        if kind == "compress_top_k":
            dropped = [float(value) for value in hyper.get("compress_warmup_values", "").split(",") if value]
            warmup = {"warmup_epochs": hyper["compress_warmup_epochs"]} if dropped else {}
            compressor = TopK(1 - recorded["ratio"], **warmup, warmup_ratios=[1 - value for value in dropped])
            compressor.at(float("inf"))
            assert list(compressor.kept(self.sizes)) == recorded["k_per_tensor"]
            return compressor
        if recorded["quantize_level"] == 32:
            return Identity()
        return QSGD(recorded["quantize_level"], contraction=recorded["is_biased"])

    def noise(self, like: Tensor) -> Tensor:
        """The fixed draw of the recording."""
        return torch.full_like(like, self.record["compressor"]["uniform_draw"])

    def local(self, parameters: list[Tensor]) -> torch.optim.Optimizer:
        """The recorded local step; plain where the rule owns the direction."""
        name = NAMES.get(self.record["algorithm"])
        kept = ("lr",) if name in OWN_DIRECTION else ("lr", "momentum", "nesterov", "weight_decay")
        kind = Signum if name == "local-sign" else torch.optim.SGD
        assert not self.hyper["dampening"], "no rule here has any"
        return kind(parameters, **{key: self.hyper[key] for key in kept})

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
