"""Decentralized and communication-compressed data-parallel training, one MPI process per rank.

Everything named here is imported at first use, so that ``import mpidec`` costs nothing and starts neither torch nor
MPI.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from mpidec.version import __version__

if TYPE_CHECKING:
    from mpidec.communicator import Communicator, Network, Rows
    from mpidec.compress import compressor
    from mpidec.compress.base import Compressor
    from mpidec.compress.dense import Identity
    from mpidec.compress.message import Message
    from mpidec.compress.quantize import QSGD
    from mpidec.compress.sign import Sign
    from mpidec.compress.sparse import TopK
    from mpidec.errors import UserError
    from mpidec.flat import FlatBuffer
    from mpidec.optim import algorithm
    from mpidec.optim.allreduce import AllReduce
    from mpidec.optim.base import Algorithm, Step
    from mpidec.optim.choco import CHOCO
    from mpidec.optim.distributed import DistributedOptimizer
    from mpidec.optim.dpsgd import DPSGD
    from mpidec.topology import Topology
    from mpidec.world import World, init

_PLACES = {
    "Algorithm": "mpidec.optim.base",
    "AllReduce": "mpidec.optim.allreduce",
    "CHOCO": "mpidec.optim.choco",
    "Communicator": "mpidec.communicator",
    "Compressor": "mpidec.compress.base",
    "DPSGD": "mpidec.optim.dpsgd",
    "DistributedOptimizer": "mpidec.optim.distributed",
    "FlatBuffer": "mpidec.flat",
    "Identity": "mpidec.compress.dense",
    "Message": "mpidec.compress.message",
    "Network": "mpidec.communicator",
    "QSGD": "mpidec.compress.quantize",
    "Rows": "mpidec.communicator",
    "Sign": "mpidec.compress.sign",
    "Step": "mpidec.optim.base",
    "TopK": "mpidec.compress.sparse",
    "Topology": "mpidec.topology",
    "UserError": "mpidec.errors",
    "World": "mpidec.world",
    "algorithm": "mpidec.optim",
    "compressor": "mpidec.compress",
    "init": "mpidec.world",
}

__all__ = [
    "CHOCO",
    "DPSGD",
    "QSGD",
    "Algorithm",
    "AllReduce",
    "Communicator",
    "Compressor",
    "DistributedOptimizer",
    "FlatBuffer",
    "Identity",
    "Message",
    "Network",
    "Rows",
    "Sign",
    "Step",
    "TopK",
    "Topology",
    "UserError",
    "World",
    "__version__",
    "algorithm",
    "compressor",
    "init",
]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'mpidec' has no attribute {name!r}")
    return getattr(import_module(_PLACES[name]), name)
