"""The options of a training run together: what is unset filled in, what cannot be refused."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mpidec import compress, optim, topology
from mpidec.names import canonical
from mpidec.train import checks
from mpidec.train.names import DTYPES, Partition, data_name, model_name
from mpidec.train.options.forms import Place
from mpidec.train.options.keep import KeepOptions
from mpidec.train.options.rule import RuleOptions
from mpidec.train.options.step import CHOICES, GENTLE, MILESTONES, MOMENTUM, OPTIMIZERS, StepOptions
from mpidec.train.options.work import WorkOptions
from mpidec.transport import COLLECTIVES

# What belongs to one start of a run and not to the run: where files are, and where it begins and ends.
STARTS = ("config", "out", "resume", "resume_as", "stop_after", "download")


@dataclass(frozen=True)
class Config(KeepOptions, StepOptions, WorkOptions, RuleOptions):
    """Train a model, one MPI process per rank. Example: mpirun -np 16 python -m mpidec.train --algorithm dpsgd"""

    config: Place = None
    """YAML file with any of these options by name, such as a run's own config.yaml; flags overrule it"""

    def __post_init__(self) -> None:
        """Fill in what is unset. Raises ``UserError`` for what is out of range, unknown, or without effect."""
        self._set("algorithm", canonical("algorithm", self.algorithm, optim.known()))
        entry = optim.entry(self.algorithm)
        self._set("compressor", checks.fitting_compressor(self.algorithm, entry, self.compressor))
        checks.refuse_strangers(self)
        self._fill(self._rule_defaults(entry))
        for name, known in (
            ("topology", topology.known()),
            ("collectives", COLLECTIVES),
            ("dtype", DTYPES),
            *CHOICES.items(),
            *optim.CHOICES.items(),
        ):
            if getattr(self, name) is not None:
                self._set(name, canonical(name.replace("_", "-"), getattr(self, name), known))
        self._set("data", data_name(self.data))
        self._set("model", model_name(self.model))
        self._set("partition", str(Partition.parse(self.partition)))
        spelled = {one.lower(): one for one in OPTIMIZERS}
        self._set("optimizer", spelled.get((self.optimizer or "").lower(), self.optimizer))
        checks.refuse_step_strangers(self)
        self._fill(self._step_defaults(entry))
        checks.refuse_out_of_range(self)

    @property
    def central(self) -> bool:
        """Whether the algorithm needs all ranks, and so collectives in the place of a graph."""
        return optim.entry(self.algorithm).central

    @property
    def owns_direction(self) -> bool:
        """Whether momentum and weight decay are the algorithm's, not the local step's."""
        return optim.entry(self.algorithm).owns_direction or self.residual == "direction"

    @property
    def direction_options(self) -> dict[str, Any]:
        """What makes the direction of the step, wherever it is made."""
        return {
            "momentum": self.momentum or 0.0,
            "nesterov": self.nesterov and bool(self.momentum),
            "weight_decay": self.weight_decay or 0.0,
        }

    @property
    def algorithm_arguments(self) -> dict[str, Any]:
        """What the algorithm's class takes beside its compressor."""
        own = {name: getattr(self, name) for name in optim.entry(self.algorithm).options}
        return own | checks.parsed("algorithm", self.algorithm_options)

    @property
    def compressor_arguments(self) -> dict[str, Any]:
        """What the compressor's class takes."""
        own = {name: getattr(self, name) for name in compress.OPTIONS.get(self.compressor or "", {})}
        return own | checks.parsed("compressor", self.compressor_options)

    def resolved(self) -> dict[str, Any]:
        """Every option with its value, but for the places of the files; ``--config`` reads it again."""
        return {
            name: str(value) if isinstance(value, Path) else value
            for name, value in dataclasses.asdict(self).items()
            if name not in STARTS and value is not None
        }

    def _rule_defaults(self, entry: optim.Entry) -> dict[str, Any]:
        defaults = entry.options | compress.OPTIONS.get(self.compressor or "", {})
        if "contraction" in defaults:
            defaults["contraction"] = optim.wants_contraction(entry.needs, self.compressor in optim.SPARSE)
        coarse = optim.SPARSE if self.algorithm == "deepsqueeze" else ("random-k",)
        if "gamma" in defaults and self.compressor in coarse:
            # The share of the disagreement that one message carries: a larger step overshoots.
            ratio = defaults["ratio"] if self.ratio is None else self.ratio
            defaults["gamma"] = min(defaults["gamma"], ratio)
        return defaults

    def _step_defaults(self, entry: optim.Entry) -> dict[str, Any]:
        plain = self.optimizer is None or self.optimizer == "SGD"
        multistep = {"milestones": MILESTONES, "lr_factor": 0.1} if self.schedule == "multistep" else {}
        decay = None if self.optimizer == "Rprop" else 1e-4
        return {
            "lr": entry.lr if plain else GENTLE,
            "momentum": MOMENTUM if plain else None,
            "weight_decay": decay,
            **multistep,
        }

    def _fill(self, defaults: dict[str, Any]) -> None:
        for name, default in defaults.items():
            if getattr(self, name) is None:
                self._set(name, default)

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)
