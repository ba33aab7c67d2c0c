"""The optimizer of the local step: any of torch.optim by name, with weight decay where it belongs."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from pkgutil import resolve_name
from typing import Any

import torch
from torch import Tensor, nn

from mpidec.errors import UserError
from mpidec.names import unknown
from mpidec.optim import entry
from mpidec.optim.sgd import SGD
from mpidec.train.checks import parsed
from mpidec.train.config import Config

NORMALISATIONS = (
    nn.modules.batchnorm._NormBase,  # BatchNorm and InstanceNorm
    nn.LayerNorm,
    nn.GroupNorm,
    nn.RMSNorm,
)
# They step many times at once, or want gradients that no flat tensor holds.
UNFIT = ("LBFGS", "SparseAdam", "Optimizer")


def local_step(config: Config, model: nn.Module) -> torch.optim.Optimizer:
    """The optimizer that ``config`` asks for, over the trainable parameters of ``model``.

    Raises ``UserError`` for one that torch.optim does not have, and for options that it does not take.
    """
    if not any(p.requires_grad for p in model.parameters()):
        raise UserError(f"--model {config.model} has no trainable parameter: nothing would be learnt")
    if config.decay == "all":
        return made(config, [p for p in model.parameters() if p.requires_grad])
    weights, others = split(model)
    groups: list[dict[str, Any]] = [{"params": weights}, {"params": others, "weight_decay": 0.0}]
    return made(config, [group for group in groups if group["params"]])


def made(config: Config, parameters: Iterable[Tensor] | Iterable[dict[str, Any]]) -> torch.optim.Optimizer:
    """The optimizer that ``config`` asks for, over ``parameters`` or groups of them."""
    kind = resolve_name(entry(config.algorithm).local) if config.optimizer is None else named(config.optimizer)
    takes = inspect.signature(kind).parameters
    options: dict[str, Any] = {"lr": config.lr}
    if not config.owns_direction:
        given = config.direction_options
        for name in ("momentum", "weight_decay"):
            if given[name] and name not in takes:
                option = f"--{name.replace('_', '-')}"
                raise UserError(f"{option} is not an option of {kind.__name__}: set it to 0, or take --optimizer SGD")
        options |= {name: value for name, value in given.items() if name in takes}
    for name, value in parsed("optimizer", config.optimizer_options).items():
        if name in ("lr", "momentum", "nesterov", "weight_decay"):
            raise UserError(f"{name} is the option --{name.replace('_', '-')}: leave it out of --optimizer-options")
        if name in ("differentiable", "capturable"):
            raise UserError(f"{name} has no place in a distributed step: leave it out of --optimizer-options")
        if name not in takes:
            raise UserError(f"{kind.__name__} has no option {name!r}: it takes {', '.join([*takes][1:])}")
        options[name] = value
    try:
        optimizer: torch.optim.Optimizer = kind(parameters, **options)
    except (ValueError, TypeError, RuntimeError) as error:
        what = f"--optimizer-options {config.optimizer_options}" if config.optimizer_options else "the options given"
        raise UserError(f"{kind.__name__} does not take {what}: {error}") from None
    return optimizer


def named(name: str) -> type[torch.optim.Optimizer]:
    """The class of torch.optim; case does not matter. Raises ``UserError`` where there is none that fits."""
    known = {
        one.lower(): one
        for one, kind in vars(torch.optim).items()
        if isinstance(kind, type) and issubclass(kind, torch.optim.Optimizer) and one not in UNFIT
    }
    if name.lower() not in known:
        raise UserError(unknown("optimizer", name, sorted(known.values())))
    # Ours does what torch's does, sooner.
    kind: type[torch.optim.Optimizer] = SGD if name.lower() == "sgd" else getattr(torch.optim, known[name.lower()])
    return kind


def split(model: nn.Module) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """The trainable parameters of ``model`` as weights, and as what weight decay may spare.

    That is every parameter of a normalisation layer, by the type of the layer, and in other layers what has fewer than
    two dimensions: biases. A parameter that two layers share is a weight where one of them has it as a weight.
    """
    spared, weights = dict[nn.Parameter, None](), dict[nn.Parameter, None]()
    for module in model.modules():
        for p in module.parameters(recurse=False):
            if p.requires_grad:
                (spared if isinstance(module, NORMALISATIONS) or p.dim() < 2 else weights)[p] = None
    return list(weights), [p for p in spared if p not in weights]
