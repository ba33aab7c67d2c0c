"""Ranks as threads of one process: a real exchange of the encoded bytes, for a debugger or a notebook."""

from __future__ import annotations

import pickle
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, TypeVar

import torch
from torch import Tensor

from mpidec.transport.hub import SAME, Hub, Stopped

Result = TypeVar("Result")


def run(work: Callable[[ThreadTransport], Result], size: int) -> list[Result]:
    """What ``work`` returns in each of ``size`` threads, by rank; none is left when this returns or raises.

    The error of the rank that fails first is raised here, with a note that names the rank; the others end at their next
    call of the transport. So do all after Ctrl-C; a second one leaves those behind that make no call.
    """
    hub, results = Hub(size), dict[int, Result]()

    def serve(rank: int) -> None:
        try:
            results[rank] = work(ThreadTransport(hub, rank))
        except Stopped:
            pass
        except BaseException as error:  # also SystemExit, which would end this thread alone
            hub.fail(rank, error)
        finally:
            hub.finish(rank)

    threads = [threading.Thread(target=serve, args=(rank,), name=f"rank {rank}", daemon=True) for rank in range(size)]

    def join() -> None:
        begun = [thread for thread in threads if thread.ident is not None]
        # Before Python 3.13 a thread whose join Ctrl-C has interrupted is taken for ended: join those alone that are.
        hub.wait_for_finished(len(begun))
        for thread in begun:
            thread.join()

    cores = torch.get_num_threads()
    # Each rank would start a thread for every core: it gets its share of them, as a process among as many does.
    torch.set_num_threads(max(1, cores // size))
    try:
        for thread in threads:
            thread.start()
        join()
    except BaseException:  # Ctrl-C, or a system that has no more threads
        hub.stop()
        join()
        raise
    finally:
        torch.set_num_threads(cores)
    if hub.failure is not None:
        _raise_named(*hub.failure, size)
    return [results[rank] for rank in range(size)]


def _raise_named(rank: int, error: BaseException, size: int) -> NoReturn:
    """Raise ``error`` itself, with its type, its message and its traceback; the rank is shown beside them."""
    told = f"raised on rank {rank} of {size}, the first to fail"
    if sys.version_info >= (3, 11):
        error.add_note(told)
        raise error
    cause = RuntimeError(told)  # Python 3.10 has no notes
    cause.__cause__ = error.__cause__ or error.__context__
    raise error from cause


class ThreadTransport:
    """One of the ranks of a ``Hub``; to be used by the thread of that rank. Device tensors go through host memory."""

    name = "threads"
    library = "none"
    communicator = None

    def __init__(self, hub: Hub, rank: int) -> None:
        self.hub, self.rank, self.size = hub, rank, hub.size

    def exchange(self, send: Tensor, to: Sequence[int], sources: Sequence[int]) -> ThreadExchange:
        """See ``Transport.exchange``. The bytes are copied here, so that ``send`` may be written again at once."""
        assert all(0 <= peer < self.size for peer in (*to, *sources)), f"the ranks are 0 .. {self.size - 1}"
        host = _host(send)
        due = self.hub.post(self.rank, {peer: host.clone() for peer in to}, sources)
        return ThreadExchange(self, due, send.numel(), send.device)

    def all_reduce(self, values: Tensor) -> None:
        """See ``Collectives.all_reduce``. The sum runs in rank order."""
        assert values.dtype.itemsize >= 4, "16-bit floats lose digits in a sum: sum them in float32"
        values.detach().copy_(self._meet("all_reduce", _host(values), _sum))

    def all_gather(self, buffer: Tensor) -> list[Tensor]:
        """See ``Collectives.all_gather``."""
        everyone = self._meet("all_gather", _host(buffer), lambda buffers: [one.clone() for one in _alike(buffers)])
        return [one.to(buffer.device, copy=True) for one in everyone]

    def broadcast(self, values: Tensor, root: int = 0) -> None:
        """See ``Collectives.broadcast``."""
        sent = self._meet(f"broadcast from {root}", _host(values), lambda everyone: _alike(everyone)[root].clone())
        values.detach().copy_(sent)

    def all_gather_objects(self, value: Any) -> list[Any]:
        """See ``Transport.all_gather_objects``. Pickled, so that the ranks share nothing."""
        return [pickle.loads(one) for one in self._meet("all_gather_objects", pickle.dumps(value), list)]

    def broadcast_object(self, value: Any, root: int = 0) -> Any:
        """See ``Transport.broadcast_object``."""
        pickled = pickle.dumps(value if self.rank == root else None)
        return pickle.loads(self._meet(f"broadcast_object from {root}", pickled, lambda everyone: everyone[root]))

    def all_reduce_flags(self, flags: Tensor) -> None:
        """See ``Transport.all_reduce_flags``."""
        flags.copy_(self._meet("all_reduce_flags", flags, lambda everyone: torch.stack(_alike(everyone)).any(0)))

    def barrier(self) -> None:
        """See ``Transport.barrier``."""
        self._meet("barrier", None, lambda everyone: None)

    def abort(self, code: int = 1) -> None:
        """End every rank; the caller of the threads sees ``SystemExit``, since the process is not only theirs."""
        error = SystemExit(code)
        self.hub.fail(self.rank, error)
        raise error

    def _meet(self, what: str, value: Any, combine: Callable[[list[Any]], Any]) -> Any:
        return self.hub.meet(self.rank, what, value, combine)


class ThreadExchange:
    """See ``mpidec.transport.base.Exchange``."""

    def __init__(self, transport: ThreadTransport, due: dict[int, int], nbytes: int, device: torch.device) -> None:
        self._transport, self._due, self._nbytes, self._device = transport, due, nbytes, device
        self._received: dict[int, Tensor] = {}

    def wait(self) -> dict[int, Tensor]:
        """See ``mpidec.transport.base.Exchange.wait``. Raises ``RuntimeError`` where another size arrives."""
        rank = self._transport.rank
        for source in list(self._due):
            buffer = self._transport.hub.receive(rank, source, self._due.pop(source))
            if buffer.numel() != self._nbytes:
                raise RuntimeError(
                    f"rank {rank} expects {self._nbytes} bytes from rank {source}, which sent {buffer.numel()}: {SAME}"
                )
            self._received[source] = buffer.to(self._device)
        return self._received

    def release(self) -> None:
        """See ``mpidec.transport.base.Exchange.release``."""
        self._received = {}


def _host(values: Tensor) -> Tensor:
    return values.detach().cpu()


def _alike(everyone: list[Tensor]) -> list[Tensor]:
    for rank, one in enumerate(everyone):
        if (one.shape, one.dtype) != (everyone[0].shape, everyone[0].dtype):
            forms = [f"rank {r} brings {tuple(everyone[r].shape)} of {everyone[r].dtype}" for r in (0, rank)]
            raise RuntimeError(f"{forms[0]}, but {forms[1]}: {SAME}")
    return everyone


def _sum(everyone: list[Tensor]) -> Tensor:
    total, *others = _alike(everyone)
    total = total.clone()
    for one in others:
        total += one
    return total
