"""What every optimizer of ours leaves out of torch's: the compiler."""

from __future__ import annotations

import inspect
from typing import Any

import torch


class Light(torch.optim.Optimizer):
    """An optimizer that is made and asked without torch's compiler, whose import costs each rank over a second.

    torch guards these methods against being compiled, and imports the compiler to do so. Here they are called as they
    stand underneath; a program that compiles its optimizer takes torch's own.
    """

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """See ``torch.optim.Optimizer``."""
        inspect.unwrap(torch.optim.Optimizer.add_param_group)(self, param_group)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """See ``torch.optim.Optimizer``."""
        inspect.unwrap(torch.optim.Optimizer.zero_grad)(self, set_to_none)

    def state_dict(self) -> dict[str, Any]:
        """See ``torch.optim.Optimizer``."""
        state: dict[str, Any] = inspect.unwrap(torch.optim.Optimizer.state_dict)(self)
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """See ``torch.optim.Optimizer``."""
        inspect.unwrap(torch.optim.Optimizer.load_state_dict)(self, state_dict)
