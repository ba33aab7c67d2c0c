"""Starting: who this process or thread is among the ranks, where its tensors live, and what happens when one fails."""

from __future__ import annotations

import sys
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Sized
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch.utils.data.distributed import DistributedSampler

from mpidec.errors import UserError, tell
from mpidec.launcher import Launch, launched
from mpidec.names import canonical
from mpidec.transport import COLLECTIVES, threads
from mpidec.transport.base import Collectives, Transport
from mpidec.transport.solo import Solo

if TYPE_CHECKING:
    from mpidec.transport.mpi import MpiTransport

Result = TypeVar("Result")


@dataclass(frozen=True)
class World:
    """The ranks of a job as one of them sees it; ``local_rank`` and ``local_size`` count the ranks on this host."""

    transport: Transport
    local_rank: int
    local_size: int
    device: torch.device

    @property
    def rank(self) -> int:
        """This process among ``size``, from 0."""
        return self.transport.rank

    @property
    def size(self) -> int:
        """Number of ranks."""
        return self.transport.size

    def sampler(self, dataset: Sized, shuffle: bool = True, seed: int = 0) -> DistributedSampler[Any]:
        """For a ``DataLoader``: this rank's share of ``dataset``, equally long on all; call its ``set_epoch``."""
        return DistributedSampler(dataset, self.size, self.rank, shuffle, seed)  # type: ignore[arg-type]

    def collectives(self, choice: str = "auto") -> Collectives:
        """What central algorithms sum with: ``horovod``, ``mpi``, or ``auto``, Horovod where every rank has it.

        Ranks that are threads sum by themselves. Raises ``UserError`` where Horovod is asked for and cannot be had
        somewhere, with the reason.
        """
        choice = canonical("collectives", choice, COLLECTIVES)
        if isinstance(self.transport, threads.ThreadTransport):
            if choice == "horovod":
                raise UserError(
                    "horovod cannot be used: it knows processes, and these ranks are threads of one; take the "
                    "collectives auto or mpi, which are the threads' own"
                )
            return self.transport
        if choice == "mpi" or isinstance(self.transport, Solo):
            return self.transport
        from mpidec.transport import horovod

        missing = [reason for reason in self.transport.all_gather_objects(horovod.missing()) if reason]
        if missing and choice == "horovod":
            raise UserError(f"horovod cannot be used: {missing[0]}; run bin/setup, or take the collectives mpi")
        if missing and self.rank == 0:
            print(f"Horovod is not used, since {missing[0]}; mpi4py sums in its place", file=sys.stderr, flush=True)
        return self.transport if missing else horovod.Horovod(self.transport.communicator, self.size)


_joined: World | None = None
_here = threading.local()  # ``world``: that of the rank which this thread is


def _world_here() -> World | None:
    return getattr(_here, "world", None)


def init(communicator: Any = None, device: str = "auto") -> World:
    """Join the job: MPI where a launcher started this process or a ``communicator`` of mpi4py is given, else one rank.

    The communicator is duplicated. From here on an uncaught exception on one rank ends all of them. Called again
    without a communicator, it returns the same world. ``device``: a torch device, or ``auto``, which takes the GPU of
    this local rank where there is one.

    In a thread of ``run_on_threads`` it returns the world of that thread.

    Raises ``UserError`` where launcher and MPI library do not belong together, for a device that is not there, for
    another device than the one of the first call, and for a ``communicator`` in such a thread.
    """
    global _joined
    if _world_here() is not None and communicator is not None:
        raise UserError("a rank that is a thread has no MPI communicator: call init() without one in run_on_threads")
    world = _world_here() or _joined
    if world is not None and communicator is None:
        if device not in ("auto", str(world.device), world.device.type):
            raise UserError(f"this rank has joined with the device {world.device}: it cannot change to {device!r}")
        return world
    launch = launched()
    transport: Transport = Solo()
    if communicator is not None or launch is not None:
        from mpidec.transport.mpi import MpiTransport, gpu_aware, refuse_singletons

        transport = mpi = MpiTransport(communicator)
        if mpi.job_size > 1 or launch is not None:
            sys.excepthook = _AbortHook(mpi, launch.rank if launch else mpi.rank)
        if launch is not None:
            refuse_singletons(mpi, launch)
        mpi.gpu_aware = gpu_aware()
    launch = launch or Launch("none", 0, 1, 0, 1)
    _joined = World(transport, launch.local_rank, launch.local_size, _device(device, launch, transport))
    return _joined


def run_on_threads(work: Callable[[World], Result], size: int, device: str = "cpu") -> list[Result]:
    """Call ``work(world)`` in ``size`` threads of this process, one for each rank; returns its results by rank.

    For a debugger or a notebook: the ranks exchange the same bytes as those of an MPI job, a breakpoint in one of them
    lets the others wait, and the error of the first that fails is raised here, with its rank. In each thread ``init()``
    returns the world of that rank, so that ``DistributedOptimizer`` needs nothing else. ``device`` is as for ``init``,
    and each rank chooses its own.

    Sharp bits: what ``work`` finds outside itself belongs to all ranks. Never train one model on several: build it
    inside, or copy one with ``copy.deepcopy``. torch's default random generator belongs to all ranks too, and their
    draws come in no fixed order, also after ``torch.manual_seed``: all start from rank 0's model as always, but two
    runs agree only where the model is built before, or drawn from a generator of its own. Gradients are on in each
    thread, whatever the caller has set, and the ranks share ``torch.get_num_threads()`` among them.

    Raises ``UserError`` for a ``size`` below 1 and inside a thread of another such call.

    >>> def work(world):
    ...     total = torch.tensor([10 ** world.rank])
    ...     world.transport.all_reduce(total)
    ...     return total.item()
    >>> run_on_threads(work, 3)
    [111, 111, 111]
    """
    if _world_here() is not None:
        raise UserError("a rank that is a thread cannot start others: call run_on_threads once, with all ranks")
    if size < 1:
        raise UserError(f"run_on_threads needs at least one rank: got {size}")

    def work_as_rank(transport: threads.ThreadTransport) -> Result:
        launch = Launch("none", transport.rank, size, transport.rank, size)
        _here.world = world = World(transport, transport.rank, size, _device(device, launch, transport))
        return work(world)

    return threads.run(work_as_rank, size)


def _device(name: str, launch: Launch, transport: Transport) -> torch.device:
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        raise UserError(f"unknown device {name!r}: auto, cpu and cuda are possible, or cuda:1 for one GPU") from None
    if device.type == "cpu":
        return device
    if device.type != "cuda" or not torch.cuda.is_available():
        raise UserError(
            f"device {name!r} is not here: torch {torch.__version__} sees {torch.cuda.device_count()} GPUs, use cpu"
        )
    if device.index is None:
        device = torch.device("cuda", launch.local_rank % torch.cuda.device_count())
    elif device.index >= torch.cuda.device_count():
        raise UserError(f"device {name!r} is not here: torch sees {torch.cuda.device_count()} GPUs, counted from 0")
    # Before the first MPI call on a device buffer: the library would bind this process to GPU 0.
    torch.cuda.set_device(device)
    users = Counter(transport.all_gather_objects(str(torch.cuda.get_device_properties(device).uuid)))
    if transport.rank == 0 and max(users.values()) > 1:
        warnings.warn(
            f"up to {max(users.values())} ranks share one GPU: right results, but they take turns", stacklevel=3
        )
    return device


class _AbortHook:
    """The uncaught exception of one rank, told once, ends the job."""

    def __init__(self, transport: MpiTransport, rank: int) -> None:
        self._transport, self._rank = transport, rank

    def __call__(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        tell(error, self._rank, self._transport.job_size)
        if self._transport.job_size > 1:
            self._transport.abort(1)
