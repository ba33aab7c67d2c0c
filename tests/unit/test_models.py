"""Networks by name: their sizes, what they take, and a sentence for what does not fit."""

from __future__ import annotations

import re

import pytest
import torch
from torch import nn

from mpidec import UserError
from mpidec.train import models
from mpidec.train.names import MODELS, data_name, model_name, takes
from support.torchvision import torchvision_or_skip

SHAPES = [(3, 32, 32), (1, 28, 28), (28, 28), (3, 17, 40)]


def parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize("sample", [(8, 8), (5,), *SHAPES])
@pytest.mark.parametrize("name", ["mlp", "logistic"])
def test_dense_networks_take_any_shape(name: str, sample: tuple[int, ...]) -> None:
    assert models.build(name, sample, 10)(torch.zeros(3, *sample)).shape == (3, 10)


@pytest.mark.parametrize("sample", SHAPES)
@pytest.mark.parametrize("name", ["lenet", "resnet20"])
def test_convolutions_take_images_with_and_without_a_channel(name: str, sample: tuple[int, ...]) -> None:
    model = models.build(name, sample, 7)
    inputs = torch.randn(4, *sample)
    outputs = model(inputs)
    assert outputs.shape == (4, 7)
    nn.functional.cross_entropy(outputs, torch.arange(4)).backward()
    assert all(float(parameter.grad.abs().sum()) > 0 for parameter in model.parameters())


@pytest.mark.parametrize(
    ("name", "sample", "size"),
    [
        ("lenet", (1, 28, 28), 61_706),
        ("lenet", (1, 31, 31), 61_706),
        ("lenet", (3, 32, 32), 62_006),
        ("resnet20", (3, 32, 32), 272_474),
        ("resnet32", (3, 32, 32), 466_906),
        ("resnet56", (3, 32, 32), 855_770),
    ],
)
def test_sizes_are_the_published_ones(name: str, sample: tuple[int, ...], size: int) -> None:
    """Option A of the ResNets is known to have 269,722, 464,154 and 853,018; B adds 2,752 in two shortcuts."""
    model = models.build(name, sample, 10)
    assert parameters(model) == size
    layers = [one for one in model.modules() if isinstance(one, (nn.Conv2d, nn.Linear))]
    shortcuts = [one for one in layers if isinstance(one, nn.Conv2d) and one.kernel_size == (1, 1)]
    depth = {"lenet": 5}.get(name) or int(name.removeprefix("resnet"))
    assert len(layers) - len(shortcuts) == depth


def test_a_resnet_halves_the_sides_twice() -> None:
    model = models.build("resnet20", (3, 32, 32), 10)
    blocks = []
    for block in (one for one in model.modules() if type(one).__name__ == "Block"):
        block.register_forward_hook(lambda _, __, out: blocks.append(out))
    model(torch.randn(1, 3, 32, 32))
    assert {float(out.detach().min()) for out in blocks} == {0.0}, "rectified after the sum"
    assert [tuple(out.shape[1:]) for out in blocks] == [(16, 32, 32)] * 3 + [(32, 16, 16)] * 3 + [(64, 8, 8)] * 3


def test_a_resnet_starts_as_he_et_al_do() -> None:
    """From normal draws of variance 2 / (9 times the channels that a convolution gives)."""
    for layer in models.build("resnet56", (3, 32, 32), 10).modules():
        if isinstance(layer, nn.Conv2d) and layer.kernel_size == (3, 3) and layer.out_channels > 16:
            wanted = (2 / (9 * layer.out_channels)) ** 0.5
            assert float(layer.weight.detach().std()) == pytest.approx(wanted, rel=0.06)


def test_an_lstm_scores_every_token_from_those_before_it() -> None:
    model = models.build("lstm", (12,), 256, tokens=True)
    assert parameters(model) == 280_832
    text = torch.randint(0, 256, (2, 12))
    outputs = model(text)
    assert outputs.shape == (2, 12, 256)
    other = text.clone()
    other[:, 6] = (text[:, 6] + 1) % 256
    changed = (model(other) != outputs).any(-1).any(0).tolist()
    assert changed == [False] * 6 + [True] * 6


@pytest.mark.parametrize(
    ("name", "sample", "tokens", "sentence"),
    [
        (
            "lenet",
            (8, 8),
            False,
            "lenet takes images of at least 16 x 16 pixels, but these have 8 x 8: choose --model mlp",
        ),
        ("lenet", (1, 15, 40), False, "but these have 15 x 40"),
        (
            "lenet",
            (64,),
            False,
            "lenet takes images of shape (1 or 3, height, width) or (height, width), but samples ha",
        ),
        ("resnet20", (4, 32, 32), False, "samples have the shape (4, 32, 32)"),
        ("resnet56", (2, 2), False, "resnet56 takes images of at least 4 x 4"),
        ("mlp", (8,), True, "mlp reads numbers, but the samples are tokens: choose --model lstm"),
        ("lstm", (8,), False, "lstm reads tokens, such as the bytes of text, but the samples are numbers: choose --da"),
        (
            "support.data:wrong_net",
            (3, 4),
            False,
            "must give scores of shape (2, 5) or (2, 3, 5) for two samples of sh",
        ),
        ("support.data:wrong_net", (3, 4), False, "but it gives shape (2, 6)"),
        ("support.data:failing_net", (3, 4), False, "fails on samples of shape (3, 4) (RuntimeError: "),
        ("support.data:pair_net", (3,), False, "but it gives tuple"),
        ("support.data:no_net", (3,), False, "returns function: it must return a torch.nn.Module"),
        ("support.data:empty_net", (5,), False, "has no parameters, so there is nothing to train"),
        ("support.data:raising", (3,), False, "--model support.data:raising raises TypeError: raising() takes 0 posit"),
        ("support.data:none", (3,), False, "--model support.data:none: support.data has no attribute none"),
        ("support.data:NUMBER", (3,), False, "--model support.data:NUMBER: it is an int, and must be a function"),
        ("no.module:net", (3,), False, "--model no.module:net: there is no module no;"),
    ],
)
def test_what_does_not_fit_is_refused(name: str, sample: tuple[int, ...], tokens: bool, sentence: str) -> None:
    with pytest.raises(UserError) as refusal:
        models.build(name, sample, 5, tokens)
    assert sentence in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_network_of_ones_own_is_tried_and_left_as_it_was() -> None:
    model = models.build("support.data:net", (3, 4), 5)
    assert model.training
    assert model[1].num_batches_tracked == 0
    assert model(torch.zeros(2, 3, 4)).shape == (2, 5)
    counting = models.build("support.data:counting_net", (3,), 5)
    assert (counting.calls, counting.modes) == (0, [False])


def test_networks_of_torchvision() -> None:
    torchvision_or_skip()
    for name in ("squeezenet1_1", "googlenet"):
        model = models.build(name, (3, 64, 64), 5)
        assert isinstance(model.train()(torch.randn(2, 3, 64, 64)), torch.Tensor), "one score for each class alone"
    for name, sample, sentence in (
        (
            "resnet18",
            (1, 28, 28),
            "resnet18 of torchvision takes images of shape (3, height, width), but samples have t",
        ),
        (
            "vit_b_16",
            (3, 64, 64),
            "--model vit_b_16 fails on samples of shape (3, 64, 64) (AssertionError: Wrong image",
        ),
        (
            "resnet19",
            (3, 64, 64),
            "unknown model 'resnet19': known are mlp, logistic, lenet, resnet20, resnet32, resnet",
        ),
        ("sqeezenet1_1", (3, 64, 64), "or an image classifier of torchvision, perhaps you meant squeezenet1_1"),
        ("fcn_resnet50", (3, 64, 64), "unknown model"),
    ):
        with pytest.raises(UserError, match=re.escape(sentence)):
            models.build(name, sample, 5)


def test_names_of_data() -> None:
    assert data_name("CIFAR-10") == "cifar10"
    assert data_name("LibSVM:A:b") == "libsvm:A:b"
    assert data_name("my.own_data:Sets.load") == "my.own_data:Sets.load"
    for text, sentence in (
        ("cifar", "unknown data 'cifar': known are digits, mnist, fashion-mnist, cifar10, cifar100, svhn, imagefolder, "
                  "libsvm:FILE, text:FILE, MODULE:FUNCTION, perhaps you meant cifar10"),
        ("text:", "--data text: names no file: give text:FILE"),
        ("my-data:x", "libsvm:FILE, text:FILE or MODULE:FUNCTION of a Python module: got 'my-data:x'"),
        ("a..b:x", "--data with a colon"),
        ("a:", "--data with a colon"),
        (":a", "--data with a colon"),
    ):  # fmt: skip
        with pytest.raises(UserError, match=re.escape(sentence)):
            data_name(text)
    assert takes("mnist") == ("directory", "download")
    assert takes("text:a") == ("sequence_length",)
    assert takes("a:b") == ("workers",)
    assert takes("digits") == takes("libsvm:x") == ()


def test_names_of_models(monkeypatch: pytest.MonkeyPatch) -> None:
    assert model_name("ResNet-20") == "resnet20"
    assert model_name("a.b:c") == "a.b:c"
    monkeypatch.setattr("mpidec.train.names.find_spec", lambda name: object())
    assert model_name("VGG-16") == "vgg_16", "only torchvision can tell whether it has that"
    with pytest.raises(UserError, match="unknown model 'a b'"):
        model_name("a b")
    monkeypatch.setattr("mpidec.train.names.find_spec", lambda name: None)
    listed = (
        f"unknown model 'mpl': known are {', '.join(MODELS)}, MODULE:FUNCTION, or an image classifier of torchvision"
    )
    with pytest.raises(UserError, match=f"{listed}, which is not installed, perhaps you meant mlp"):
        model_name("mpl")
    with pytest.raises(UserError, match="--model with a colon is MODULE:FUNCTION of a Python module: got 'a-b:c'"):
        model_name("a-b:c")
