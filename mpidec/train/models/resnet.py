"""Residual networks for small images: He et al. 2015, arXiv 1512.03385, section 4.2."""

from __future__ import annotations

from torch import Tensor, nn

from mpidec.train.models.shapes import image_shape, with_channel


class Block(nn.Module):
    """Two 3 x 3 convolutions, added to the input.

    Where ``stride`` or channels change the shape, the input goes through a 1 x 1 convolution (option B of the paper),
    whose 2,752 parameters make the 272,474 of ResNet-20 that published compression experiments count.
    """

    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.residual = nn.Sequential(
            nn.Conv2d(inside, outside, 3, stride, padding=1, bias=False),
            nn.BatchNorm2d(outside),
            nn.ReLU(),
            nn.Conv2d(outside, outside, 3, padding=1, bias=False),
            nn.BatchNorm2d(outside),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inside != outside:
            self.shortcut = nn.Sequential(nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside))

    def forward(self, inputs: Tensor) -> Tensor:
        """``(batch, inside, height, width)`` to ``(batch, outside, height / stride, width / stride)``."""
        outputs: Tensor = self.residual(inputs) + self.shortcut(inputs)
        return outputs.relu()


def resnet20(sample: tuple[int, ...], classes: int) -> nn.Module:
    """20 layers: 272,474 parameters on CIFAR-10."""
    return _resnet("resnet20", 3, sample, classes)


def resnet32(sample: tuple[int, ...], classes: int) -> nn.Module:
    """32 layers: 466,906 parameters on CIFAR-10."""
    return _resnet("resnet32", 5, sample, classes)


def resnet56(sample: tuple[int, ...], classes: int) -> nn.Module:
    """56 layers: 855,770 parameters on CIFAR-10."""
    return _resnet("resnet56", 9, sample, classes)


def _resnet(name: str, blocks: int, sample: tuple[int, ...], classes: int) -> nn.Module:
    """A stem of 16 channels, three stages of ``blocks`` with 16, 32 and 64 channels, their mean, and a dense layer."""
    channels, *_ = image_shape(name, sample, 4)
    stages: list[nn.Module] = []
    inside = 16
    for outside in (16, 32, 64):
        for block in range(blocks):
            stages.append(Block(inside, outside, 2 if block == 0 and outside > 16 else 1))
            inside = outside
    model = nn.Sequential(
        *with_channel(sample),
        nn.Conv2d(channels, 16, 3, padding=1, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        *stages,
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, classes),
    )
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
    return model
