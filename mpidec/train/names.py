"""The names of data sets, models and the like, importable without torch."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec

from mpidec.errors import UserError
from mpidec.names import canonical, unknown

# Functions from a ``Source`` to a ``Dataset``.
DATA = {
    "digits": "mpidec.train.data.bundled:digits",
    "mnist": "mpidec.train.data.vision:load",
    "fashion-mnist": "mpidec.train.data.vision:load",
    "cifar10": "mpidec.train.data.vision:load",
    "cifar100": "mpidec.train.data.vision:load",
    "svhn": "mpidec.train.data.vision:load",
    "imagefolder": "mpidec.train.data.imagefolder:load",
}
SCHEMES = {"libsvm": "mpidec.train.data.libsvm:load", "text": "mpidec.train.data.text:load"}
FACTORY = "MODULE:FUNCTION"
# Which fields of a ``Source`` have an effect, beside the name; ``FACTORY``: on those of other modules.
TAKES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("mnist", "fashion-mnist", "cifar10", "cifar100", "svhn"), ("directory", "download")),
    "imagefolder": ("directory", "image_size", "workers"),
    "text": ("sequence_length",),
    FACTORY: ("workers",),
}
# Functions from the shape of a sample and the number of classes to a module.
MODELS = {
    "mlp": "mpidec.train.models.dense:mlp",
    "logistic": "mpidec.train.models.dense:logistic",
    "lenet": "mpidec.train.models.lenet:lenet",
    "resnet20": "mpidec.train.models.resnet:resnet20",
    "resnet32": "mpidec.train.models.resnet:resnet32",
    "resnet56": "mpidec.train.models.resnet:resnet56",
    "lstm": "mpidec.train.models.lstm:lstm",
}
DTYPES = ("float32", "float64")


def data_name(text: str) -> str:
    """The spelling of a data set: a name of the table, ``libsvm:FILE``, ``text:FILE`` or ``package.module:factory``.

    Raises ``UserError`` for anything else.

    >>> data_name("Fashion_MNIST"), data_name("Text:a.txt"), data_name("my.module:load")
    ('fashion-mnist', 'text:a.txt', 'my.module:load')
    """
    before, colon, behind = text.partition(":")
    if not colon:
        return canonical("data", text, [*DATA, *(f"{scheme}:FILE" for scheme in SCHEMES), FACTORY])
    if before.lower() in SCHEMES:
        if not behind:
            raise UserError(f"--data {text} names no file: give {before.lower()}:FILE")
        return f"{before.lower()}:{behind}"
    if not is_factory(text):
        known = ", ".join(f"{scheme}:FILE" for scheme in SCHEMES)
        raise UserError(f"--data with a colon is {known} or {FACTORY} of a Python module: got {text!r}")
    return text


def takes(data: str) -> tuple[str, ...]:
    """The fields of a ``Source`` that have an effect on the data set of that (checked) name, beside the name."""
    before, colon, _ = data.partition(":")
    return TAKES.get(FACTORY if colon and before not in SCHEMES else before, ())


def model_name(text: str) -> str:
    """The spelling of a network: a name of the table, one of torchvision's, or ``package.module:factory``.

    Only torchvision knows its own names, so that where it is installed they are looked up when the network is built.
    Raises ``UserError`` for what can be neither.

    >>> model_name("ResNet-20"), model_name("my.module:net")
    ('resnet20', 'my.module:net')
    """
    if ":" in text:
        if not is_factory(text):
            raise UserError(f"--model with a colon is {FACTORY} of a Python module: got {text!r}")
        return text
    with suppress(UserError):
        return canonical("model", text, MODELS)
    name = text.lower().replace("-", "_")
    if not name.isidentifier() or find_spec("torchvision") is None:
        raise UserError(unknown_model(text))
    return name


def unknown_model(name: str, others: Iterable[str] = ()) -> str:
    """The sentence for a network that is known neither here nor to torchvision, which knows ``others``."""
    missing = "" if find_spec("torchvision") else ", which is not installed"
    _, comma, meant = unknown("model", name, [*MODELS, *others]).partition(", perhaps")
    listed = unknown("model", name, MODELS).partition(", perhaps")[0]
    return f"{listed}, {FACTORY}, or an image classifier of torchvision{missing}{comma}{meant}"


def is_factory(text: str) -> bool:
    """Whether ``text`` has the form of ``package.module:factory``."""
    module, colon, name = text.partition(":")
    return bool(colon) and all(part.isidentifier() for part in [*module.split("."), *name.split(".")])


@dataclass(frozen=True)
class Partition:
    """How samples are dealt to ranks; ``alpha`` is that of ``dirichlet``.

    >>> str(Partition.parse("Dirichlet:0.50"))
    'dirichlet:0.5'
    """

    kind: str = "iid"
    alpha: float | None = None

    @classmethod
    def parse(cls, text: str) -> Partition:
        """From ``iid``, ``fixed``, ``sorted`` or ``dirichlet:ALPHA``. Raises ``UserError`` for anything else."""
        kind, colon, alpha = text.lower().partition(":")
        if kind in ("iid", "fixed", "sorted") and not colon:
            return cls(kind)
        with suppress(ValueError):
            if kind == "dirichlet" and 1e-3 <= float(alpha) <= 1e6:
                return cls(kind, float(alpha))
        raise UserError(
            f"--partition is iid, fixed, sorted, or dirichlet:ALPHA with an ALPHA of 0.001 to 1e6: got {text!r}"
        )

    def __str__(self) -> str:
        return self.kind if self.alpha is None else f"{self.kind}:{self.alpha:g}"
