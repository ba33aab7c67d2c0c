"""Packing truth values into bytes: entry ``i`` is bit ``i % 8``, counted from the lowest, of byte ``i // 8``.

numpy's packing is the reference and runs on the CPU; the same operator in torch runs on a device.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

WORD = 8  # bytes; every packed plane is padded to whole 64-bit words


def packed_bytes(entries: int) -> int:
    """Bytes that ``entries`` packed truth values take, padded to whole words."""
    return -(-entries // (8 * WORD)) * WORD


def pack(flags: Tensor, out: Tensor) -> None:
    """Pack ``flags``, bool of shape ``(..., d)``, into ``out``, uint8 of shape ``(..., packed_bytes(d))``."""
    used = -(-flags.shape[-1] // 8)
    out[..., used:] = 0
    if flags.device.type == "cpu":
        out[..., :used] = torch.from_numpy(np.packbits(flags.numpy(), axis=-1, bitorder="little"))
    else:
        out[..., :used] = _pack_on_device(flags)


def unpack(packed: Tensor, entries: int) -> Tensor:
    """The first ``entries`` truth values of ``packed``, as uint8 zeros and ones of shape ``(..., entries)``."""
    if packed.device.type == "cpu":
        bits = np.unpackbits(packed.numpy(), axis=-1, count=entries, bitorder="little")
        return torch.from_numpy(bits)
    return _unpack_on_device(packed, entries)


def _pack_on_device(flags: Tensor) -> Tensor:
    padding = -flags.shape[-1] % 8
    octets = torch.nn.functional.pad(flags.to(torch.uint8), (0, padding)).view(*flags.shape[:-1], -1, 8)
    return (octets << torch.arange(8, dtype=torch.uint8, device=flags.device)).sum(-1, dtype=torch.uint8)


def _unpack_on_device(packed: Tensor, entries: int) -> Tensor:
    shifts = torch.arange(8, dtype=torch.uint8, device=packed.device)
    bits: Tensor = (packed.unsqueeze(-1) >> shifts) & 1
    return bits.flatten(-2)[..., :entries]
