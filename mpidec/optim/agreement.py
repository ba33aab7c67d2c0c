"""All ranks begin with the same model: what differs is named, then rank 0's values go to everyone."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn

from mpidec.errors import UserError
from mpidec.flat import FlatBuffer
from mpidec.optim.base import Algorithm
from mpidec.topology import Topology
from mpidec.transport.base import Transport

Found = TypeVar("Found")


def refuse_different_models(transport: Transport, model: nn.Module, flat: FlatBuffer) -> None:
    """Raise ``UserError`` where a rank's parameters or buffers differ from rank 0's in name, shape or dtype."""
    trained = {s.name for s in flat.segments}
    mine = [("parameter " + name, _form(p, name in trained)) for name, p in model.named_parameters()]
    mine += [("buffer " + name, _form(buffer)) for name, buffer in model.named_buffers()]
    everyone = transport.all_gather_objects(mine)
    for rank, theirs in enumerate(everyone):
        for position, (name, form) in enumerate(everyone[0]):
            if position >= len(theirs) or theirs[position][0] != name:
                other = theirs[position][0] if position < len(theirs) else "nothing"
                raise UserError(
                    f"the models differ: rank 0 has {name} where rank {rank} has {other}; build the same on all"
                )
            if theirs[position][1] != form:
                raise UserError(
                    f"the models differ: {name} is {form} on rank 0, but {theirs[position][1]} on rank {rank}"
                )
        if len(theirs) > len(everyone[0]):
            raise UserError(f"the models differ: rank {rank} has {theirs[len(everyone[0])][0]}, which rank 0 lacks")


def _form(tensor: Tensor, trained: bool = False) -> str:
    return f"{'to be trained, ' if trained else ''}shape {tuple(tensor.shape)}, {tensor.dtype}"


def refuse_different_rules(
    transport: Transport, topology: Topology, algorithm: Algorithm, steps_per_epoch: int | None
) -> None:
    """Raise ``UserError`` where two ranks would follow different rules or graphs, which would deadlock."""
    mine = {
        "their algorithm": algorithm.described,
        "their compressor": repr(algorithm.compressor),
        "their steps_per_epoch": steps_per_epoch,
        "their topology": topology.digest,
    }
    refuse_differences(transport, mine)


def refuse_differences(transport: Transport, mine: dict[str, Any]) -> None:
    """Raise ``UserError`` on every rank where one has other values than rank 0, naming the first; a collective."""
    everyone = transport.all_gather_objects(mine)
    for rank, theirs in enumerate(everyone):
        for what in everyone[0] | theirs:
            first, other = everyone[0].get(what), theirs.get(what)
            if first != other:
                raise UserError(
                    f"the ranks differ in {what}: {first} on rank 0, but {other} on rank {rank}; take the same on all"
                )


def by_rank_0(transport: Transport, find: Callable[[], Found]) -> Found:
    """What ``find`` returns on rank 0, which alone calls it, on all ranks; a ``UserError`` of it becomes one on all."""
    found: Found | None = None
    mistake: UserError | None = None
    if transport.rank == 0:
        try:
            found = find()
        except UserError as error:
            mistake = error
    found, told = transport.broadcast_object((found, str(mistake) if mistake else None))
    if told is not None:
        raise mistake or UserError(told)
    return cast(Found, found)


def one_by_one(transport: Transport, mine: Tensor, sizes: Sequence[int]) -> Iterator[Tensor]:
    """On rank 0 the bytes of every rank in rank order, of which it never holds more than two; on others nothing.

    A collective call, which all must go through to the end. ``mine``: uint8 on the CPU; ``sizes``: of each rank's.
    """
    if transport.rank > 0 and mine.numel():
        transport.exchange(mine, [0], []).wait()
    for rank, size in enumerate(sizes if transport.rank == 0 else ()):
        if rank == 0 or size == 0:
            yield mine[:size]
            continue
        exchange = transport.exchange(mine.new_empty(size), [], [rank])
        yield exchange.wait()[rank]
        exchange.release()


def first_failure(told: Sequence[Any]) -> str:
    """The first failure, a string that is not empty, among what each rank tells, with its rank; empty without any."""
    failed = {rank: one for rank, one in enumerate(told) if isinstance(one, str) and one}
    if not failed:
        return ""
    rank = min(failed)
    others = f" (and {len(failed) - 1} more of {len(told)} ranks)" if len(failed) > 1 else ""
    return f"rank {rank}: {failed[rank]}{others}"


def broadcast_model(transport: Transport, model: nn.Module, flat: FlatBuffer) -> None:
    """Rank 0's parameters and buffers on every rank; digests are compared, so that a bad transfer has a name."""
    trained = {s.name for s in flat.segments}
    others = {name: p for name, p in model.named_parameters() if name not in trained} | dict(model.named_buffers())
    for tensor in (flat.data, *others.values()):
        transport.broadcast(tensor)
    named = {s.name: view for s, view in zip(flat.segments, flat.views(flat.data), strict=True)} | others
    digests = {name: digest(tensor) for name, tensor in named.items()}
    for rank, theirs in enumerate(transport.all_gather_objects(digests)):
        for name in named:
            if theirs[name] != digests[name]:
                raise RuntimeError(f"{name} arrived on rank {rank} with other bytes than here, after the broadcast")


def digest(tensor: Tensor) -> str:
    """sha256 over the bytes of a tensor, as it lies in memory row by row."""
    contiguous = tensor.detach().cpu().contiguous()
    return hashlib.sha256(contiguous.view(-1).view(torch.uint8).numpy().tobytes()).hexdigest()
