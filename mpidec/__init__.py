"""Decentralized and communication-compressed data-parallel training, one MPI process per rank.

Everything named here is imported at first use, so that ``import mpidec`` costs nothing and starts neither torch nor
MPI.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from mpidec.version import __version__

if TYPE_CHECKING:
    from mpidec.communicator import Communicator, Network
    from mpidec.compress import compressor
    from mpidec.compress.base import Compressor
    from mpidec.compress.dense import Identity
    from mpidec.compress.message import Message
    from mpidec.compress.quantize import QSGD
    from mpidec.compress.sign import Sign
    from mpidec.compress.sparse import RandomK, TopK
    from mpidec.errors import UserError
    from mpidec.flat import FlatBuffer
    from mpidec.optim import algorithm
    from mpidec.optim.allreduce import AllReduce
    from mpidec.optim.averaging import averaged
    from mpidec.optim.base import Algorithm, Step
    from mpidec.optim.choco import CHOCO
    from mpidec.optim.dcd import DCD
    from mpidec.optim.deepsqueeze import DeepSqueeze
    from mpidec.optim.dgc import DGC
    from mpidec.optim.distributed import DistributedOptimizer
    from mpidec.optim.dpsgd import DPSGD
    from mpidec.optim.ecd import ECD
    from mpidec.optim.ef_sign_sgd import EFSignSGD
    from mpidec.optim.local_ef_sign_sgd import LocalEFSignSGD
    from mpidec.optim.local_sgd import LocalSGD
    from mpidec.optim.local_sign_sgd import LocalSignSGD
    from mpidec.optim.naive import Naive
    from mpidec.optim.scaler import EqualScaler
    from mpidec.optim.sign_sgd import SignSGD
    from mpidec.optim.signum import Signum
    from mpidec.rows import Rows
    from mpidec.topology import Topology
    from mpidec.train.checkpoint.store import Checkpoints
    from mpidec.world import World, init, run_on_threads

_PLACES = {
    "Algorithm": "mpidec.optim.base",
    "AllReduce": "mpidec.optim.allreduce",
    "CHOCO": "mpidec.optim.choco",
    "Checkpoints": "mpidec.train.checkpoint.store",
    "Communicator": "mpidec.communicator",
    "Compressor": "mpidec.compress.base",
    "DCD": "mpidec.optim.dcd",
    "DGC": "mpidec.optim.dgc",
    "DPSGD": "mpidec.optim.dpsgd",
    "DeepSqueeze": "mpidec.optim.deepsqueeze",
    "DistributedOptimizer": "mpidec.optim.distributed",
    "ECD": "mpidec.optim.ecd",
    "EFSignSGD": "mpidec.optim.ef_sign_sgd",
    "EqualScaler": "mpidec.optim.scaler",
    "FlatBuffer": "mpidec.flat",
    "Identity": "mpidec.compress.dense",
    "LocalEFSignSGD": "mpidec.optim.local_ef_sign_sgd",
    "LocalSGD": "mpidec.optim.local_sgd",
    "LocalSignSGD": "mpidec.optim.local_sign_sgd",
    "Message": "mpidec.compress.message",
    "Naive": "mpidec.optim.naive",
    "Network": "mpidec.communicator",
    "QSGD": "mpidec.compress.quantize",
    "RandomK": "mpidec.compress.sparse",
    "Rows": "mpidec.rows",
    "Sign": "mpidec.compress.sign",
    "SignSGD": "mpidec.optim.sign_sgd",
    "Signum": "mpidec.optim.signum",
    "Step": "mpidec.optim.base",
    "TopK": "mpidec.compress.sparse",
    "Topology": "mpidec.topology",
    "UserError": "mpidec.errors",
    "World": "mpidec.world",
    "algorithm": "mpidec.optim",
    "averaged": "mpidec.optim.averaging",
    "compressor": "mpidec.compress",
    "init": "mpidec.world",
    "run_on_threads": "mpidec.world",
}

__all__ = [
    "CHOCO",
    "DCD",
    "DGC",
    "DPSGD",
    "ECD",
    "QSGD",
    "Algorithm",
    "AllReduce",
    "Checkpoints",
    "Communicator",
    "Compressor",
    "DeepSqueeze",
    "DistributedOptimizer",
    "EFSignSGD",
    "EqualScaler",
    "FlatBuffer",
    "Identity",
    "LocalEFSignSGD",
    "LocalSGD",
    "LocalSignSGD",
    "Message",
    "Naive",
    "Network",
    "RandomK",
    "Rows",
    "Sign",
    "SignSGD",
    "Signum",
    "Step",
    "TopK",
    "Topology",
    "UserError",
    "World",
    "__version__",
    "algorithm",
    "averaged",
    "compressor",
    "init",
    "run_on_threads",
]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'mpidec' has no attribute {name!r}")
    return getattr(import_module(_PLACES[name]), name)
