"""MPI through mpi4py: the only file that imports it, and only once a transport is made.

Importing mpi4py starts MPI, which a forked or spawned data-loading worker must never do.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from mpidec.errors import UserError
from mpidec.launcher import Launch


class MpiTransport:
    """The ranks of one MPI communicator, duplicated, so that a user's own messages on it are never matched.

    Device buffers travel through pinned host memory unless ``gpu_aware``. Messages above ``largest`` bytes (for sums,
    values) are split, since MPI counts in 32-bit integers.
    """

    name = "mpi"

    def __init__(self, communicator: Any = None, gpu_aware: bool = False, largest: int = 2**30) -> None:
        from mpi4py import MPI

        self._mpi = MPI
        self.communicator = (MPI.COMM_WORLD if communicator is None else communicator).Dup()
        self.job_size: int = MPI.COMM_WORLD.Get_size()
        self.rank: int = self.communicator.Get_rank()
        self.size: int = self.communicator.Get_size()
        self.library = _library(MPI)
        self.gpu_aware, self._largest = gpu_aware, largest
        self._free: defaultdict[tuple[int, torch.device, bool], list[Tensor]] = defaultdict(list)

    def exchange(self, send: Tensor, to: Sequence[int], sources: Sequence[int]) -> MpiExchange:
        """See ``Transport.exchange``. Receives are posted before sends."""
        staged = send.device.type != "cpu" and not self.gpu_aware
        sent = self.take(send.numel(), send.device, staged).copy_(send, non_blocking=True) if staged else send
        if send.device.type != "cpu":
            # MPI knows no streams: what it reads must have been written, what it overwrites must have been read.
            torch.cuda.current_stream(send.device).synchronize()
        received = {peer: self.take(send.numel(), send.device, staged) for peer in sources}
        requests = [
            self.communicator.Irecv(piece, source=peer) for peer in sources for piece in self._pieces(received[peer])
        ]
        requests += [self.communicator.Isend(piece, dest=peer) for peer in to for piece in self._pieces(sent)]
        return MpiExchange(self, requests, sent, received, send.device, staged)

    def all_reduce(self, values: Tensor) -> None:
        """See ``Collectives.all_reduce``."""
        assert values.dtype.itemsize >= 4, "MPI knows no 16-bit floats: sum them in float32"

        def add(host: Tensor) -> None:
            for piece in host.view(-1).split(self._largest):
                self.communicator.Allreduce(self._mpi.IN_PLACE, piece.numpy(), op=self._mpi.SUM)

        self._on_host(values, add)

    def all_gather(self, buffer: Tensor) -> list[Tensor]:
        """See ``Collectives.all_gather``."""
        host = buffer.cpu()
        gathered = torch.empty(self.size, host.numel(), dtype=torch.uint8)
        for start in range(0, host.numel(), self._largest):
            piece = host[start : start + self._largest]
            pieces = torch.empty(self.size, piece.numel(), dtype=torch.uint8)
            self.communicator.Allgather(piece.numpy(), pieces.numpy())
            gathered[:, start : start + self._largest] = pieces
        return list(gathered.to(buffer.device))

    def broadcast(self, values: Tensor, root: int = 0) -> None:
        """See ``Collectives.broadcast``; any dtype travels as bytes."""

        def send(host: Tensor) -> None:
            for piece in self._pieces(host.view(-1).view(torch.uint8)):
                self.communicator.Bcast(piece, root=root)

        self._on_host(values, send)

    def all_gather_objects(self, value: Any) -> list[Any]:
        """See ``Transport.all_gather_objects``."""
        gathered: list[Any] = self.communicator.allgather(value)
        return gathered

    def broadcast_object(self, value: Any, root: int = 0) -> Any:
        """See ``Transport.broadcast_object``."""
        return self.communicator.bcast(value, root=root)

    def all_reduce_flags(self, flags: Tensor) -> None:
        """See ``Transport.all_reduce_flags``."""
        self.communicator.Allreduce(self._mpi.IN_PLACE, flags.view(torch.uint8).numpy(), op=self._mpi.MAX)

    def barrier(self) -> None:
        """See ``Transport.barrier``."""
        self.communicator.Barrier()

    def abort(self, code: int = 1) -> None:
        """End every process of the launch, also those outside this communicator."""
        self._mpi.COMM_WORLD.Abort(code)

    def take(self, nbytes: int, device: torch.device, staged: bool) -> Tensor:
        """A buffer of ``nbytes``, one that was given back where there is one; pinned host memory if ``staged``."""
        free = self._free[nbytes, device, staged]
        if free:
            return free.pop()
        if staged:
            return torch.empty(nbytes, dtype=torch.uint8, pin_memory=True)
        return torch.empty(nbytes, dtype=torch.uint8, device=device)

    def give(self, buffer: Tensor, device: torch.device, staged: bool) -> None:
        """Put a buffer back that ``take`` gave."""
        self._free[buffer.numel(), device, staged].append(buffer)

    def wait_all(self, requests: list[Any]) -> None:
        """Wait for every request."""
        self._mpi.Request.Waitall(requests)

    def _pieces(self, buffer: Tensor) -> list[Any]:
        """``buffer`` in pieces that MPI can count; a tensor of a device is handed over as it is."""
        whole: Any = buffer.numpy() if buffer.device.type == "cpu" else buffer
        return [[whole[i : i + self._largest], self._mpi.BYTE] for i in range(0, buffer.numel(), self._largest)]

    def _on_host(self, values: Tensor, operation: Callable[[Tensor], None]) -> None:
        """Collectives run on contiguous host memory; MPI libraries differ in which of them take a device buffer."""
        host = values.detach().to("cpu").contiguous()
        operation(host)
        if host.data_ptr() != values.data_ptr():
            values.copy_(host)


class MpiExchange:
    """See ``mpidec.transport.base.Exchange``."""

    def __init__(
        self,
        transport: MpiTransport,
        requests: list[Any],
        sent: Tensor,
        received: dict[int, Tensor],
        device: torch.device,
        staged: bool,
    ) -> None:
        self._transport, self._requests, self._sent, self._received = transport, requests, sent, received
        self._device, self._staged = device, staged

    def wait(self) -> dict[int, Tensor]:
        """See ``mpidec.transport.base.Exchange.wait``."""
        self._transport.wait_all(self._requests)
        if self._staged:
            return {peer: buffer.to(self._device) for peer, buffer in self._received.items()}
        return self._received

    def release(self) -> None:
        """See ``mpidec.transport.base.Exchange.release``."""
        for buffer in self._received.values():
            self._transport.give(buffer, self._device, self._staged)
        if self._staged:
            self._transport.give(self._sent, self._device, self._staged)
        self._received = {}


def gpu_aware() -> bool:
    """Whether device buffers may be handed to MPI: ``MPIDEC_GPU_AWARE=1``; with ``auto`` and ``0`` they are staged.

    Raises ``UserError`` for another value.
    """
    choice = os.environ.get("MPIDEC_GPU_AWARE", "auto")
    if choice not in ("auto", "0", "1"):
        raise UserError(f"MPIDEC_GPU_AWARE is auto, 0 or 1: got {choice!r}")
    return choice == "1"


def refuse_singletons(transport: MpiTransport, launch: Launch) -> None:
    """Raise ``UserError`` where the launcher started several processes and the MPI library found only one.

    That happens when the launcher on PATH belongs to another MPI than the one mpi4py loads.
    """
    if launch.size > 1 and transport.job_size == 1:
        raise UserError(
            f"{launch.launcher} started {launch.size} processes, but {transport.library}, which mpi4py loads, sees "
            "one: start the job with the launcher of that library (python -m mpidec.doctor shows both)"
        )


def do_not_start() -> None:
    """Let a later import of mpi4py leave MPI alone: for those who only ask what is installed."""
    try:
        import mpi4py
    except ImportError:
        return
    mpi4py.rc.initialize = False


def library() -> str:
    """Name and version of the MPI library that mpi4py loads; empty where there is none."""
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError):
        return ""
    return _library(MPI)


def thread_level() -> str:
    """What MPI allows threads to do: Horovod's own thread needs MULTIPLE."""
    from mpi4py import MPI

    names = ("SINGLE", "FUNNELED", "SERIALIZED", "MULTIPLE")
    return next(name for name in names if getattr(MPI, f"THREAD_{name}") == MPI.Query_thread())


def _library(mpi: Any) -> str:
    name: str = mpi.Get_library_version()
    return name.split("\n")[0].split(",")[0].strip("\0 ")
