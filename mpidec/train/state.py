"""What a rank must remember to go on bit for bit, as plain tensors, numbers and names."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from mpidec.train.trainer import Trainer

Snapshot = dict[str, Any]


def snapshot(trainer: Trainer, epoch: int, batch: int) -> Snapshot:
    """The state of this rank before the batch ``batch``, from 0, of ``epoch``. Loads with ``weights_only``."""
    return {
        "model": trainer.model.state_dict(),
        "other buffers": _other_buffers(trainer.model),
        "optimizer": trainer.optimizer.state_dict(),
        "scheduler": trainer.scheduler.state_dict(),
        "scaler": trainer.scaler.state_dict(),
        "rng": random_states(),
        "position": {"epoch": epoch, "batch": batch},
        "meter": trainer.meter.state_dict(),
    }


def restore(trainer: Trainer, state: Snapshot) -> None:
    """The inverse, into a trainer of the same options."""
    trainer.model.load_state_dict(state["model"])
    for name, buffer in _other_buffers(trainer.model).items():
        buffer.copy_(state["other buffers"][name])
    trainer.optimizer.load_state_dict(state["optimizer"])
    trainer.scheduler.load_state_dict(state["scheduler"])
    trainer.scaler.load_state_dict(state["scaler"])
    trainer.meter.load_state_dict(state["meter"])
    set_random_states(state["rng"])


def _other_buffers(model: nn.Module) -> dict[str, Tensor]:
    """Those that a module does not keep in its state dict, but may change in training all the same."""
    kept = model.state_dict().keys()
    return {name: buffer for name, buffer in model.named_buffers() if name not in kept}


def random_states() -> dict[str, Any]:
    """Of every generator that a model or a data set may draw from on this rank: torch's, numpy's, Python's."""
    name, keys, position, has_gauss, gauss = np.random.get_state(legacy=True)
    version, words, nothing = random.getstate()
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state() if torch.cuda.is_initialized() else None,
        "numpy": [str(name), torch.from_numpy(np.asarray(keys, dtype=np.int64)), position, has_gauss, gauss],
        "python": [version, list(words), nothing],
    }


def set_random_states(states: dict[str, Any]) -> None:
    """The inverse of ``random_states``."""
    torch.set_rng_state(states["torch"])
    if states["cuda"] is not None and torch.cuda.is_available():
        torch.cuda.set_rng_state(states["cuda"])
    name, keys, position, has_gauss, gauss = states["numpy"]
    np.random.set_state((name, keys.numpy().astype(np.uint32), position, has_gauss, gauss))
    version, words, nothing = states["python"]
    random.setstate((version, tuple(words), nothing))
