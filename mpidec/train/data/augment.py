"""Images moved and mirrored at random, as is usual for CIFAR (He et al. 2015, arXiv 1512.03385)."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from mpidec.errors import UserError


def augment(inputs: Tensor, generator: torch.Generator) -> Tensor:
    """Each image of ``inputs`` moved by up to an eighth of its sides, and mirrored or not; zeros come in from outside.

    ``inputs``: shape ``(batch, channels, height, width)``, as normalised, so that zero is the mean. The draws are
    taken from ``generator``, on the CPU, so that they are the same on every device.
    """
    count, channels, height, width = inputs.shape
    up, left = height // 8, width // 8
    rows = torch.randint(0, 2 * up + 1, (count, 1), generator=generator) + torch.arange(height)
    columns = torch.randint(0, 2 * left + 1, (count, 1), generator=generator) + torch.arange(width)
    mirrored = torch.randint(0, 2, (count, 1), generator=generator).bool()
    columns = torch.where(mirrored, columns.flip(1), columns)
    rows, columns = rows.to(inputs.device), columns.to(inputs.device)
    image, channel = (torch.arange(number, device=inputs.device) for number in (count, channels))
    padded = pad(inputs, (left, left, up, up))
    return padded[image[:, None, None, None], channel[:, None, None], rows[:, None, :, None], columns[:, None, None]]


def refuse_other_than_images(sample: tuple[int, ...]) -> None:
    """Raise ``UserError`` where samples of that shape are no images with channels."""
    if len(sample) != 3:
        raise UserError(
            f"augmentation moves and mirrors images of shape (channels, height, width), but samples have the shape "
            f"{sample}: leave it out"
        )
