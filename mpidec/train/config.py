"""The options of a training run: their types and their defaults."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from mpidec import compress, optim, topology
from mpidec.names import canonical
from mpidec.train import checks
from mpidec.train.names import DATA, DTYPES, MODELS, Partition
from mpidec.transport import COLLECTIVES


def _one_of(names: list[str], then: str = "") -> Any:
    """Help that lists what there is, the parts of other packages too."""
    return tyro.conf.arg(metavar="STR", help=", ".join(names[:-1]) + f" or {names[-1]}{then}")


# Options that may be unset; without a name for their values help would show each as "{None}|FLOAT".
Number = Annotated[float | None, tyro.conf.arg(metavar="FLOAT")]
Count = Annotated[int | None, tyro.conf.arg(metavar="INT")]
Name = Annotated[str | None, tyro.conf.arg(metavar="STR")]
Gamma = Annotated[float | Literal["auto"] | None, tyro.conf.arg(metavar="FLOAT|auto")]
Truth = Annotated[bool | None, tyro.conf.arg(metavar="True|False")]
Place = Annotated[Path | None, tyro.conf.arg(metavar="PATH")]


@dataclass(frozen=True)
class Config:
    """Train a model, one MPI process per rank. Example: mpirun -np 16 python -m mpidec.train --algorithm dpsgd"""

    config: Place = None
    """YAML file with any of these options by name, such as a run's own config.yaml; flags overrule it"""
    algorithm: Annotated[str, _one_of(optim.known())] = "choco"
    compressor: Annotated[str | None, _one_of(compress.known(), "; unset: the algorithm's own choice")] = None
    topology: Annotated[str, _one_of(topology.known(), "; algorithms that need all ranks take no graph")] = "ring"
    gamma: Gamma = None
    """choco, deepsqueeze, naive: consensus step size in (0, 1], or auto (not for naive), which searches it on the
    consensus problem; unset: 0.3, but at most the ratio of random-k, and of top-k under deepsqueeze"""
    resync: Count = None
    """choco: steps after which the sum of the neighbours' copies is formed anew, against round-off; unset: 0, never"""
    order: Name = None
    """dpsgd: adapt-then-combine or combine-then-adapt; unset: adapt-then-combine"""
    period: Count = None
    """local, local-sign, local-ef-sign: steps from one synchronisation to the next; unset: 5"""
    start_epoch: Number = None
    """local, local-sign, local-ef-sign: epoch at which local steps begin, every step synchronises before; unset: 0"""
    product: Name = None
    """local-sign, local-ef-sign: separate averages signs and scales apart, exact their products; unset: separate"""
    direction: Name = None
    """local-ef-sign: signum, 1 bit an entry, or int8; unset: signum"""
    vote: Name = None
    """sign: majority or mean; unset: majority"""
    residual: Name = None
    """ef-sign: what is remembered, in units of the parameters or of the direction; unset: parameters"""
    clip: Number = None
    """dgc: norm that no tensor of a rank's gradient exceeds, times the root of the ranks; unset: no limit"""
    mask_momentum: Truth = None
    """dgc: True takes the momentum of entries that were sent back to 0; unset: True"""
    ratio: Number = None
    """top-k, random-k: fraction of the entries kept, in (0, 1]; unset: 0.01"""
    warmup_epochs: Number = None
    """top-k, random-k: epochs over which the fraction falls from 0.25 to the ratio, in steps of a quarter; unset: 0"""
    bits: Count = None
    """qsgd: bits of a level, 1 to 8; unset: 8"""
    contraction: Truth = None
    """qsgd, random-k: True scales to a contraction, False is unbiased; unset: what the algorithm is analysed for"""
    algorithm_options: Name = None
    """of an algorithm of another package: NAME=VALUE, several separated by commas"""
    compressor_options: Name = None
    """of a compressor of another package: NAME=VALUE, several separated by commas"""
    data: str = "digits"
    """data set: digits (1,797 images that come with scikit-learn)"""
    model: str = "mlp"
    """network: mlp (64-128-10 on digits) or logistic"""
    partition: str = "iid"
    """how samples are dealt to the ranks: iid, anew in each epoch; sorted by label; dirichlet:ALPHA, the more uneven in
    labels the smaller ALPHA"""
    dtype: str = "float32"
    """of parameters, samples and messages: float32 or float64"""
    epochs: int = 30
    """passes over the data"""
    batch_size: int = 8
    """samples per rank and step"""
    lr: Number = None
    """learning rate of the local step; unset: 0.1, and 0.003 for sign and local-sign"""
    momentum: float = 0.9
    """of the local step; 0: none"""
    nesterov: bool = True
    """Nesterov's form of the momentum, where there is any"""
    weight_decay: float = 1e-4
    """factor of the parameters that is added to the gradient"""
    seed: int = 0
    """of the initial parameters, the order of the samples and the compressor's draws"""
    out: Place = None
    """folder of the results, new or empty; unset: runs/<time>-<algorithm>-<compressor>-<topology>-n<ranks>"""
    device: str = "auto"
    """cpu, cuda or cuda:N; auto: the GPU of the local rank where there is one"""
    collectives: str = "auto"
    """what algorithms that need all ranks sum with: horovod, mpi or auto, which is Horovod where every rank has it"""

    def __post_init__(self) -> None:
        """Fill in what is unset. Raises ``UserError`` for what is out of range, unknown, or without effect."""
        self._set("algorithm", canonical("algorithm", self.algorithm, optim.known()))
        entry = optim.entry(self.algorithm)
        self._set("compressor", checks.fitting_compressor(self.algorithm, entry, self.compressor))
        checks.refuse_strangers(self)
        defaults = entry.options | compress.OPTIONS.get(self.compressor or "", {})
        if "contraction" in defaults:
            defaults["contraction"] = optim.wants_contraction(entry.needs, self.compressor in optim.SPARSE)
        coarse = optim.SPARSE if self.algorithm == "deepsqueeze" else ("random-k",)
        if "gamma" in defaults and self.compressor in coarse:
            # The share of the disagreement that one message carries: a larger step overshoots.
            ratio = defaults["ratio"] if self.ratio is None else self.ratio
            defaults["gamma"] = min(defaults["gamma"], ratio)
        for name, default in defaults.items():
            if getattr(self, name) is None:
                self._set(name, default)
        if self.lr is None:
            self._set("lr", entry.lr)
        for name, known in (
            ("topology", topology.known()),
            ("data", DATA),
            ("model", MODELS),
            ("collectives", COLLECTIVES),
            ("dtype", DTYPES),
            *optim.CHOICES.items(),
        ):
            if getattr(self, name) is not None:
                self._set(name, canonical(name, getattr(self, name), known))
        self._set("partition", str(Partition.parse(self.partition)))
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
            "momentum": self.momentum,
            "nesterov": self.nesterov and self.momentum > 0,
            "weight_decay": self.weight_decay,
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
            name: value
            for name, value in dataclasses.asdict(self).items()
            if name not in ("config", "out") and value is not None
        }

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)
