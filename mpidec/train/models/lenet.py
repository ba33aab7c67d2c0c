"""LeNet-5, with rectified units and max pooling."""

from __future__ import annotations

from torch import nn

from mpidec.train.models.shapes import image_shape, with_channel


def lenet(sample: tuple[int, ...], classes: int) -> nn.Module:
    """Two convolutions and three dense layers, in the form of LeCun et al. 1998.

    61,706 parameters on MNIST. Images below 32 pixels are padded by two, which makes 32 of MNIST's 28, as there. Raises
    ``UserError`` for images below 16 pixels, and for other samples.
    """
    channels, *sides = image_shape("lenet", sample, 16)
    padding = 2 if min(sides) < 32 else 0
    height, width = (((side + 2 * padding - 4) // 2 - 4) // 2 for side in sides)
    return nn.Sequential(
        *with_channel(sample),
        nn.Conv2d(channels, 6, 5, padding=padding),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(16 * height * width, 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
        nn.Linear(84, classes),
    )
