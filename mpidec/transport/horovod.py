"""Horovod's collectives over the same ranks: the only file that imports it, and only for central algorithms.

Once initialised, its progress thread slows every other MPI message of the process.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def missing() -> str:
    """Why Horovod cannot be used by this process, in a few words; empty where it can."""
    try:
        import horovod.torch as hvd
    except Exception as error:  # a build for another torch or MPI fails in many ways, and each is a reason
        return f"it cannot be imported ({type(error).__name__}: {(str(error).splitlines() or ['no reason'])[0]})"
    return "" if hvd.mpi_built() else "it was built without MPI"


class Horovod:
    """All-reduce, all-gather and broadcast by Horovod, over a ``communicator`` of mpi4py with ``size`` ranks.

    A collective call itself; ask ``missing`` on every rank before.
    """

    name = "horovod"

    def __init__(self, communicator: Any, size: int) -> None:
        import horovod.torch as hvd

        hvd.init(comm=communicator)
        self._hvd: Any = hvd
        self.size = size
        # A Horovod without GPU operations would fail on a device tensor.
        self._on_device = bool(hvd.nccl_built() or hvd.cuda_built())

    def all_reduce(self, values: Tensor) -> None:
        """See ``Collectives.all_reduce``."""
        host = self._place(values)
        self._hvd.allreduce_(host, op=self._hvd.Sum, name="mpidec.all_reduce")
        self._put_back(values, host)

    def all_gather(self, buffer: Tensor) -> list[Tensor]:
        """See ``Collectives.all_gather``."""
        gathered: Tensor = self._hvd.allgather(self._place(buffer), name="mpidec.all_gather")
        return list(gathered.to(buffer.device).view(self.size, -1))

    def broadcast(self, values: Tensor, root: int = 0) -> None:
        """See ``Collectives.broadcast``."""
        host = self._place(values)
        self._hvd.broadcast_(host.view(-1).view(torch.uint8), root_rank=root, name="mpidec.broadcast")
        self._put_back(values, host)

    def _place(self, values: Tensor) -> Tensor:
        values = values.detach()
        return values.contiguous() if self._on_device or values.device.type == "cpu" else values.to("cpu").contiguous()

    def _put_back(self, values: Tensor, host: Tensor) -> None:
        if host.data_ptr() != values.data_ptr():
            values.copy_(host)
