"""Text, byte by byte: each byte is to be told from those before it."""

from __future__ import annotations

import numpy as np
import torch

from mpidec.errors import UserError
from mpidec.train.data.dataset import Dataset, Split
from mpidec.train.data.source import Source

LENGTH = 64  # bytes of a sample
HELD_OUT = 10  # one of so many parts of the file, the last one, is for testing


def load(source: Source) -> Dataset:
    """Samples of ``source.sequence_length`` bytes that follow each other, without overlap; the labels are one ahead.

    The last tenth of the file is held out for testing. Raises ``UserError`` for a file that cannot be read or is too
    short.
    """
    length, path = source.sequence_length or LENGTH, source.file
    try:
        text = np.fromfile(path, dtype=np.uint8)
    except OSError as error:
        raise UserError(f"--data {source.name} cannot be read: {(error.strerror or str(error)).lower()}") from None
    held_out = len(text) // HELD_OUT
    if held_out < length + 1:
        raise UserError(
            f"{path} has {len(text):,} bytes, of which a tenth is held out: samples of --sequence-length {length} need "
            f"{HELD_OUT * (length + 1):,} at least"
        )
    return Dataset(_split(text[:-held_out], length), _split(text[-held_out:], length), 256)


def _split(text: np.ndarray[tuple[int], np.dtype[np.uint8]], length: int) -> Split:
    """What is left at the end, less than a sample, is left out. Inputs in int16: as uint8 they would be images."""
    used = (len(text) - 1) // length * length
    inputs, labels = (torch.from_numpy(text[start : start + used].copy()).view(-1, length) for start in (0, 1))
    return Split(inputs.to(torch.int16), labels)
