"""All ranks begin with the same model: what differs is named, then rank 0's values go to everyone."""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor, nn

from mpidec.errors import UserError
from mpidec.flat import FlatBuffer
from mpidec.topology import Topology
from mpidec.transport.base import Transport


def refuse_different_models(transport: Transport, model: nn.Module, flat: FlatBuffer) -> None:
    """Raise ``UserError`` where a rank's parameters or buffers differ from rank 0's in name, shape or dtype."""
    tensors = {"parameter " + s.name: flat.data[s.place].view(s.shape) for s in flat.segments}
    tensors |= {"buffer " + name: b for name, b in model.named_buffers()}
    mine = [(name, f"the shape {tuple(t.shape)} and {t.dtype}") for name, t in tensors.items()]
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
                    f"the models differ: {name} has {form} on rank 0, but {theirs[position][1]} on rank {rank}"
                )
        if len(theirs) > len(everyone[0]):
            raise UserError(f"the models differ: rank {rank} has {theirs[len(everyone[0])][0]}, which rank 0 lacks")


def refuse_different_graphs(transport: Transport, topology: Topology) -> None:
    """Raise ``UserError`` where two ranks would mix along different graphs, which would deadlock."""
    digests = transport.all_gather_objects(hashlib.sha256(repr(topology.rows).encode()).hexdigest())
    strange = [rank for rank, digest in enumerate(digests) if digest != digests[0]]
    if strange:
        raise UserError(
            f"the topologies differ: rank {strange[0]} mixes with other weights than rank 0; build the same on all"
        )


def broadcast_model(transport: Transport, model: nn.Module, flat: FlatBuffer) -> None:
    """Rank 0's parameters and buffers on every rank; digests are compared, so that a bad transfer has a name."""
    transport.broadcast(flat.data)
    for buffer in model.buffers():
        transport.broadcast(buffer)
    named = {
        **dict(zip([s.name for s in flat.segments], flat.views(flat.data), strict=True)),
        **dict(model.named_buffers()),
    }
    digests = {name: digest(tensor) for name, tensor in named.items()}
    for rank, theirs in enumerate(transport.all_gather_objects(digests)):
        for name in named:
            if theirs[name] != digests[name]:
                raise RuntimeError(f"{name} arrived on rank {rank} with other bytes than here, after the broadcast")


def digest(tensor: Tensor) -> str:
    """sha256 over the bytes of a tensor, as it lies in memory row by row."""
    contiguous = tensor.detach().cpu().contiguous()
    return hashlib.sha256(contiguous.view(-1).view(torch.uint8).numpy().tobytes()).hexdigest()
