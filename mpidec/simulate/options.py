"""The options of every simulation, importable without torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import tyro

from mpidec import compress, optim, topology
from mpidec.train.config import Config
from mpidec.train.options.forms import Place

Gammas = Annotated[
    tuple[float | Literal["auto"], ...],
    tyro.conf.arg(metavar="[FLOAT|auto ...]"),
]


@dataclass(frozen=True)
class Sweep:
    """Options of which each may have several values: every combination that makes sense is run."""

    ranks: tuple[int, ...] = (16,)
    """number of ranks"""
    topology: Annotated[tuple[str, ...], tyro.conf.arg(metavar="[STR ...]", help=", ".join(topology.known()))] = (
        "ring",
    )
    algorithm: Annotated[tuple[str, ...], tyro.conf.arg(metavar="[STR ...]", help=", ".join(optim.known()))] = (
        "dpsgd",
        "choco",
        "naive",
    )
    compressor: Annotated[
        tuple[str, ...],
        tyro.conf.arg(metavar="[STR ...]", help=f"{', '.join(compress.known())}; unset: each algorithm's own choice"),
    ] = ()
    ratio: tuple[float, ...] = ()
    """top-k, random-k: fraction of the entries kept, in (0, 1]; unset: 0.01"""
    bits: tuple[int, ...] = ()
    """qsgd: bits of a level, 1 to 8; unset: 8"""
    gamma: Gammas = ()
    """choco, deepsqueeze, naive: consensus step size in (0, 1], or auto; unset: auto, and 0.3 for naive"""
    seed: int = 0
    """of the start, the order of the samples and the compressor's draws"""
    out: Place = None
    """folder of the results, new or empty; unset: runs/<time>-<command>"""


@dataclass(frozen=True)
class Consensus(Sweep):
    """Average consensus: how fast ranks that hold different vectors agree on their mean, by rounds and by bytes."""

    dim: int = 1000
    """entries of each rank's vector, one segment"""
    rounds: int = 300
    """rounds of communication"""
    dtype: str = "float64"
    """float32 or float64"""


@dataclass(frozen=True)
class Logistic(Sweep):
    """Logistic regression: objective minus optimum by epochs and by bytes, on data that may differ among the ranks."""

    algorithm: Annotated[tuple[str, ...], tyro.conf.arg(metavar="[STR ...]", help=", ".join(optim.known()))] = (
        "allreduce",
        "dpsgd",
        "choco",
        "naive",
    )
    data: str = "breast-cancer"
    """breast-cancer (569 samples, standardised), or the path of a LIBSVM file of two classes, without an intercept"""
    partition: str = "sorted"
    """how samples are dealt to the ranks: iid, anew in each epoch; sorted by label; dirichlet:ALPHA"""
    regularization: Annotated[float | None, tyro.conf.arg(metavar="FLOAT")] = None
    """factor of norm2(x)^2 / 2 in the objective; unset: 1 / samples"""
    epochs: int = 50
    """passes over the data"""
    batch_size: int = 1
    """samples per rank and step"""
    lr: tuple[float, ...] = (1.0,)
    """learning rate at the start; of several, each line shows the one that ends lowest"""
    decay: float = 0.2
    """the rate of epoch e, from 0, is lr / (1 + decay e); 0: constant"""


@dataclass(frozen=True)
class Network(Config):
    """Train a network as mpidec.train does, with the same numbers, all ranks in this process."""

    ranks: int = 16
    """number of ranks"""


@dataclass(frozen=True)
class Tune:
    """Search the largest consensus step size gamma that is stable, with a margin."""

    ranks: int = 16
    """number of ranks"""
    topology: str = "ring"
    """family of the graph"""
    algorithm: str = "choco"
    """choco or deepsqueeze"""
    compressor: str = "sign"
    """any compressor of the algorithm"""
    ratio: Annotated[float | None, tyro.conf.arg(metavar="FLOAT")] = None
    """top-k, random-k: fraction of the entries kept, in (0, 1]; unset: 0.01"""
    bits: Annotated[int | None, tyro.conf.arg(metavar="INT")] = None
    """qsgd: bits of a level, 1 to 8; unset: 8"""
    sizes: tuple[int, ...] = (8192, 128, 1280, 10)
    """entries of each layer; unset: those of the network mlp on digits"""
    margin: float = 0.5
    """share of the largest stable value that is taken"""
    seed: int = 0
    """of the start and the compressor's draws"""
    out: Place = None
    """folder of the results, new or empty; unset: runs/<time>-tune"""


@dataclass(frozen=True)
class Pattern:
    """The published comparison: which algorithm survives which compressor, at the best learning rate and gamma."""

    ranks: int = 8
    """number of ranks"""
    topology: str = "ring"
    """family of the graph"""
    epochs: int = 10
    """passes over the data"""
    partition: str = "iid"
    """how samples are dealt to the ranks: iid, anew in each epoch; sorted by label; dirichlet:ALPHA"""
    seed: int = 0
    """of the initial parameters, the order of the samples and the compressor's draws"""
    processes: Annotated[int | None, tyro.conf.arg(metavar="INT")] = None
    """cells that are computed at a time; unset: one for each core"""
    out: Place = None
    """folder of the results, new or empty; unset: runs/<time>-pattern"""


@dataclass(frozen=True)
class Scale:
    """Project the time of a step for up to thousands of ranks from latency and bandwidth."""

    ranks: tuple[int, ...] = (4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
    """numbers of ranks"""
    parameters: int = 25_600_000
    """entries of the model; unset: a ResNet-50"""
    compute: float = 0.1
    """seconds of a step without communication"""
    encode: float = 0.0
    """seconds a step that a rank encodes and decodes compressed messages"""
    latency: float = 2e-6
    """seconds that a message takes however short it is"""
    bandwidth: float = 12.5e9
    """bytes a second of each rank's own link, each way; unset: 100 Gbit/s"""
    ranks_per_host: int = 8
    """ranks of a host, of which one speaks to the other hosts, for hierarchical"""
    local_bandwidth: float = 100e9
    """bytes a second of each rank to those of its host, each way, for hierarchical"""
    compressor: str = "sign"
    """of the compressed lines"""
    ratio: Annotated[float | None, tyro.conf.arg(metavar="FLOAT")] = None
    """top-k, random-k: fraction of the entries kept, in (0, 1]; unset: 0.01"""
    bits: Annotated[int | None, tyro.conf.arg(metavar="INT")] = None
    """qsgd: bits of a level, 1 to 8; unset: 8"""
    measure: bool = False
    """measure latency and bandwidth between ranks 0 and 1: mpirun -np 2 python -m mpidec.simulate scale --measure"""
    out: Place = None
    """folder of the results, new or empty; unset: runs/<time>-scale"""
