"""The options of a training run: their types, their defaults, and which of them go together."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mpidec import compress, optim
from mpidec.errors import UserError
from mpidec.names import canonical
from mpidec.topology.families import FAMILIES
from mpidec.train.names import DATA, MODELS
from mpidec.transport import COLLECTIVES


@dataclass(frozen=True)
class Config:
    """Train a model, one MPI process per rank. Example: mpirun -np 16 python -m mpidec.train --algorithm dpsgd"""

    config: Path | None = None
    """YAML file with any of these options by name, such as a run's own config.yaml; flags overrule it"""
    algorithm: str = "choco"
    """allreduce, dpsgd or choco"""
    compressor: str | None = None
    """identity, fp16, bf16, top-k, sign or qsgd; unset: sign for choco, identity for the others"""
    topology: str = "ring"
    """who talks to whom: complete, expander, ring or torus; allreduce takes every rank and no graph"""
    gamma: float | None = None
    """choco: consensus step size in (0, 1]; unset: 0.3"""
    order: str | None = None
    """dpsgd: adapt-then-combine or combine-then-adapt; unset: adapt-then-combine"""
    ratio: float | None = None
    """top-k: fraction of the entries kept, in (0, 1]; unset: 0.01"""
    bits: int | None = None
    """qsgd: bits of a level, 1 to 8; unset: 8"""
    contraction: bool | None = None
    """qsgd: True scales the message down to a contraction, as choco's analysis asks; False is unbiased; unset: True"""
    data: str = "digits"
    """data set: digits (1,797 images that come with scikit-learn)"""
    model: str = "mlp"
    """network: mlp (64-128-10 on digits) or logistic"""
    epochs: int = 30
    """passes over the data"""
    batch_size: int = 8
    """samples per rank and step"""
    lr: float = 0.1
    """learning rate of the local SGD step"""
    momentum: float = 0.9
    """of the local SGD step; 0: none"""
    nesterov: bool = True
    """Nesterov's form of the momentum, where there is any"""
    weight_decay: float = 1e-4
    """factor of the parameters that is added to the gradient"""
    seed: int = 0
    """of the initial parameters, the order of the samples and the compressor's draws"""
    out: Path | None = None
    """folder of the results, new or empty; unset: runs/<time>-<algorithm>-<compressor>-<topology>-n<ranks>"""
    device: str = "auto"
    """cpu, cuda or cuda:N; auto: the GPU of the local rank where there is one"""
    collectives: str = "auto"
    """what allreduce sums with: horovod, mpi or auto, which is Horovod where every rank has it"""

    def __post_init__(self) -> None:
        """Fill in what is unset. Raises ``UserError`` for what is out of range, unknown, or without effect."""
        self._set("algorithm", canonical("algorithm", self.algorithm, optim.ALGORITHMS))
        entry = optim.ALGORITHMS[self.algorithm]
        chosen = entry.compressors[0] if self.compressor is None else self.compressor
        self._set("compressor", canonical("compressor", chosen, compress.COMPRESSORS))
        if self.compressor not in entry.compressors:
            raise UserError(
                f"{self.algorithm} does not work with the compressor {self.compressor}, which loses what is never sent "
                f"again: take {', '.join(entry.compressors)}, or the algorithm choco"
            )
        self._settle("algorithm", {name: e.options for name, e in optim.ALGORITHMS.items()})
        self._settle("compressor", compress.OPTIONS)
        if self.order is not None:
            self._set("order", canonical("order", self.order, optim.ORDERS))
        for name, known in (("topology", FAMILIES), ("data", DATA), ("model", MODELS), ("collectives", COLLECTIVES)):
            self._set(name, canonical(name, getattr(self, name), known))
        self._refuse_out_of_range()

    @property
    def central(self) -> bool:
        """Whether the algorithm needs all ranks, and so collectives in the place of a graph."""
        return optim.ALGORITHMS[self.algorithm].central

    @property
    def algorithm_options(self) -> dict[str, Any]:
        """What the algorithm's class takes beside its compressor."""
        return {name: getattr(self, name) for name in optim.ALGORITHMS[self.algorithm].options}

    @property
    def compressor_options(self) -> dict[str, Any]:
        """What the compressor's class takes."""
        assert self.compressor is not None
        return {name: getattr(self, name) for name in compress.OPTIONS.get(self.compressor, {})}

    def resolved(self) -> dict[str, Any]:
        """Every option with its value, but for the places of the files; ``--config`` reads it again."""
        return {
            name: value
            for name, value in dataclasses.asdict(self).items()
            if name not in ("config", "out") and value is not None
        }

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def _settle(self, kind: str, options: dict[str, dict[str, Any]]) -> None:
        """Give the options of the chosen algorithm or compressor their defaults; refuse those of the others."""
        chosen = options.get(getattr(self, kind), {})
        for user, its in options.items():
            for name, default in its.items():
                if name in chosen and getattr(self, name) is None:
                    self._set(name, default)
                elif name not in chosen and getattr(self, name) is not None:
                    raise UserError(
                        f"--{name} belongs to the {kind} {user}, but this run uses {getattr(self, kind)}: "
                        f"leave it out, or choose --{kind} {user}"
                    )

    def _refuse_out_of_range(self) -> None:
        for name, fits, range_ in (
            ("epochs", self.epochs >= 1, "at least 1"),
            ("batch_size", self.batch_size >= 1, "at least 1"),
            ("lr", 0 < self.lr < float("inf"), "above 0 and finite"),
            ("momentum", 0 <= self.momentum < 1, "at least 0 and below 1"),
            ("weight_decay", 0 <= self.weight_decay < float("inf"), "at least 0 and finite"),
            ("seed", 0 <= self.seed < 2**63, "at least 0 and below 2^63"),
            ("gamma", self.gamma is None or 0 < self.gamma <= 1, "above 0 and at most 1"),
            ("ratio", self.ratio is None or 0 < self.ratio <= 1, "above 0 and at most 1"),
            ("bits", self.bits is None or 1 <= self.bits <= 8, "1 to 8"),
        ):
            if not fits:
                raise UserError(f"--{name.replace('_', '-')} must be {range_}: got {getattr(self, name)}")
