"""What shape of samples a network takes."""

from __future__ import annotations

from torch import nn

from mpidec.errors import UserError


def image_shape(name: str, sample: tuple[int, ...], least: int) -> tuple[int, int, int]:
    """Channels, height and width; samples without channels have one.

    Raises ``UserError`` for samples that are no images, and for images with a side below ``least`` pixels.
    """
    channels, *sides = sample if len(sample) == 3 else (1, *sample)
    if len(sides) != 2 or channels not in (1, 3):
        raise UserError(
            f"{name} takes images of shape (1 or 3, height, width) or (height, width), but samples have the shape "
            f"{sample}: choose --model mlp, or other --data"
        )
    if min(sides) < least:
        raise UserError(
            f"{name} takes images of at least {least} x {least} pixels, but these have {sides[0]} x {sides[1]}: choose "
            "--model mlp, or other --data"
        )
    return channels, sides[0], sides[1]


def with_channel(sample: tuple[int, ...]) -> list[nn.Module]:
    """The layer that adds the channel to samples without one; none for others."""
    return [nn.Unflatten(1, (1, sample[0]))] if len(sample) == 2 else []
