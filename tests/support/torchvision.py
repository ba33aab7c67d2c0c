"""torchvision beside a torch that it was not built for: data sets and networks need no operator of its own."""

from __future__ import annotations

import importlib

import pytest
import torch

# As torchvision itself declares them in C++; only those that its import looks up.
MISSING = dict.fromkeys(("nms", "qnms"), "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")


def torchvision_or_skip() -> None:
    """Make it importable. Skips the calling module, with the reason, where that cannot be."""
    try:
        importlib.import_module("torchvision")
    except RuntimeError:
        for name, schema in MISSING.items():
            torch.library.define(f"torchvision::{name}", schema)
        try:
            importlib.import_module("torchvision")
        except Exception as error:
            pytest.skip(f"torchvision cannot be imported: {error}", allow_module_level=True)
    except ImportError as error:
        pytest.skip(f"torchvision cannot be imported: {error}", allow_module_level=True)
