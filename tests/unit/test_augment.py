"""Random crops and mirrors, draws that need no state, and losses of samples and of tokens."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from mpidec import UserError
from mpidec.train.data.augment import augment, refuse_other_than_images
from mpidec.train.data.dataset import Split
from mpidec.train.data.draws import generator_of, seed_of, seeded
from mpidec.train.evaluate import scores, targets
from mpidec.train.loss import cross_entropy, hits


def possible(image: Tensor) -> list[Tensor]:
    """All crops of ``image``, shape ``(C, H, W)``, mirrored and not, by plain slices."""
    _, height, width = image.shape
    up, left = height // 8, width // 8
    padded = nn.functional.pad(image, (left, left, up, up))
    crops = [
        padded[:, row : row + height, column : column + width]
        for row in range(2 * up + 1)
        for column in range(2 * left + 1)
    ]
    return crops + [crop.flip(-1) for crop in crops]


def test_every_crop_and_mirror_appears_and_nothing_else() -> None:
    image = torch.arange(1.0, 2 * 9 * 16 + 1).view(2, 9, 16)
    drawn = augment(image.expand(400, -1, -1, -1), generator_of(0, 0, 1, 0))
    assert drawn.shape == (400, 2, 9, 16)
    wanted = {tuple(crop.flatten().tolist()) for crop in possible(image)}
    assert len(wanted) == 3 * 5 * 2
    assert {tuple(one.flatten().tolist()) for one in drawn} == wanted


def test_each_image_is_drawn_for_alone_and_repeats_with_its_generator() -> None:
    images = torch.randn(8, 3, 32, 32)
    first = augment(images, generator_of(0, 1, 2, 3))
    assert torch.equal(first, augment(images, generator_of(0, 1, 2, 3)))
    others = [(1, 1, 2, 3), (0, 2, 2, 3), (0, 1, 3, 3), (0, 1, 2, 4)]
    assert not any(torch.equal(first, augment(images, generator_of(*one))) for one in others)
    assert len({seed_of(*one) for one in [(0, 1, 2, 3), *others, (2**63 - 1, 0, 0, 0)]}) == 6
    assert all(0 <= seed_of(seed, 0, 1, 2) < 2**63 for seed in range(50))
    augment(images[:1].double(), generator_of(0, 0, 0, 0))


def test_small_images_are_mirrored_alone() -> None:
    image = torch.randn(1, 1, 7, 7)
    seen = [augment(image, generator_of(0, 0, 0, batch)) for batch in range(20)]
    assert all(torch.equal(one, image) or torch.equal(one, image.flip(-1)) for one in seen)


def test_only_images_are_augmented() -> None:
    refuse_other_than_images((3, 8, 8))
    with pytest.raises(UserError, match=r"but samples have the shape \(8, 8\): leave it out"):
        refuse_other_than_images((8, 8))


def test_seeded_draws_leave_others_alone() -> None:
    def draw() -> tuple[float, float, float]:
        return float(torch.rand(())), float(np.random.rand()), random.random()

    with seeded(3):
        outside = draw()
    with seeded(4):
        before, mine = draw(), None
        with seeded(3):
            mine = draw()
        after = draw()
    with seeded(4):
        assert (draw(), draw()) == (before, after)
    assert mine == outside
    with seeded(2**63 - 1):
        draw()


def test_loss_and_hits_of_samples_and_of_tokens() -> None:
    outputs, labels = torch.randn(6, 4, 5), torch.randint(0, 5, (6, 4))
    logs = outputs.log_softmax(-1)
    by_hand = -sum(logs[i, j, labels[i, j]] for i in range(6) for j in range(4)) / 24
    torch.testing.assert_close(cross_entropy(outputs, labels), by_hand)
    right = sum(int(outputs[i, j].argmax()) == int(labels[i, j]) for i in range(6) for j in range(4))
    assert int(hits(outputs, labels)) == right
    plain = cross_entropy(outputs[:, 0], labels[:, 0])
    assert torch.equal(plain, nn.functional.cross_entropy(outputs[:, 0], labels[:, 0])), "to the last bit"
    with pytest.raises(UserError, match=r"scores of shape \(6, 5\), but the labels have the shape \(6, 4\)"):
        cross_entropy(outputs[:, 0], labels)


def test_accuracy_is_counted_by_the_token() -> None:
    text = torch.arange(40, dtype=torch.int16).view(10, 4)
    split = Split(text, (text + 1).to(torch.uint8))

    def model(inputs: Tensor) -> Tensor:
        """Right where the token is even."""
        return nn.functional.one_hot(inputs + 1 - inputs % 2, 64).float()

    assert targets(split) == 40
    assert int(scores(model, split)[0]) == 20
    assert [int(scores(model, split, first, 4)[0]) for first in range(4)] == [6, 6, 4, 4]
    assert int(scores(model, split, 11, 12)[0]) == 0
