"""Networks by name."""

from __future__ import annotations

from pkgutil import resolve_name

import torch
from torch import Tensor, nn

from mpidec.errors import UserError
from mpidec.train.foreign import call, told
from mpidec.train.names import MODELS, unknown_model
from mpidec.train.vision import torchvision

RECURRENT = ("lstm",)  # those of the table that take tokens
AUXILIARY = ("googlenet", "inception_v3")  # of torchvision, which return several scores unless told not to


def build(name: str, sample: tuple[int, ...], classes: int, tokens: bool = False) -> nn.Module:
    """The network ``name``: of the table, of torchvision, or of a user's own ``package.module:factory``.

    ``sample``: shape of a sample, of ``tokens`` in int64 or of floats. Those that are not of the table are tried on two
    samples of zeros first. Raises ``UserError`` for an unknown name, and for one that does not fit the samples.
    """
    if name in MODELS:
        if tokens != (name in RECURRENT):
            raise UserError(
                f"{name} reads {'numbers' if tokens else 'tokens, such as the bytes of text'}, but the samples are "
                f"{'tokens: choose --model lstm' if tokens else 'numbers: choose --data text:FILE'}"
                ", or a network of your own"
            )
        model: nn.Module = resolve_name(MODELS[name])(sample, classes)
        return model
    if ":" not in name:
        return _tried(name, _of_torchvision(name, sample, classes), sample, classes, tokens)
    made = call("--model", name, sample, classes)
    if not isinstance(made, nn.Module):
        raise UserError(f"--model {name} returns {type(made).__name__}: it must return a torch.nn.Module")
    return _tried(name, made, sample, classes, tokens)


def _of_torchvision(name: str, sample: tuple[int, ...], classes: int) -> nn.Module:
    known = torchvision(f"--model {name}, which is none of {', '.join(MODELS)},").models
    names = known.list_models(module=known)
    if name not in names:
        raise UserError(unknown_model(name, names))
    if len(sample) != 3 or sample[0] != 3:
        raise UserError(
            f"{name} of torchvision takes images of shape (3, height, width), but samples have the shape {sample}: "
            "choose another --model or --data"
        )
    options = {"aux_logits": False, "init_weights": True} if name in AUXILIARY else {}
    model: nn.Module = known.get_model(name, weights=None, num_classes=classes, **options)
    return model


def _tried(name: str, model: nn.Module, sample: tuple[int, ...], classes: int, tokens: bool) -> nn.Module:
    """``model``, if it gives scores for samples of zeros, as it was. Raises ``UserError`` otherwise."""
    parameter = next(model.parameters(), None)
    if parameter is None:
        raise UserError(f"--model {name} has no parameters, so there is nothing to train")
    inputs = torch.zeros(2, *sample, dtype=torch.int64 if tokens else parameter.dtype)
    was_training, buffers = model.training, [buffer.clone() for buffer in model.buffers()]
    try:
        with torch.no_grad():
            outputs = model.eval()(inputs)
    except Exception as error:  # whatever a user's own code raises
        raise UserError(f"--model {name} fails on samples of shape {sample} ({told(error)})") from error
    finally:
        model.train(was_training)
    for buffer, values in zip(model.buffers(), buffers, strict=True):
        buffer.copy_(values)
    wanted = [(2, classes), *([(2, sample[0], classes)] if sample else [])]
    if not isinstance(outputs, Tensor) or tuple(outputs.shape) not in wanted:
        came = f"shape {tuple(outputs.shape)}" if isinstance(outputs, Tensor) else type(outputs).__name__
        raise UserError(
            f"--model {name} must give scores of shape {' or '.join(map(str, wanted))} for two samples of shape "
            f"{sample}, but it gives {came}"
        )
    return model
