"""torchvision, where it is installed and works."""

from __future__ import annotations

import importlib
from typing import Any

import torch

from mpidec.errors import UserError
from mpidec.version import installed


def torchvision(wanted_by: str) -> Any:
    """The package. Raises ``UserError``, which names ``wanted_by``, where it is missing or belongs to another torch."""
    try:
        importlib.import_module("torchvision.datasets")
        return importlib.import_module("torchvision")
    except (ImportError, RuntimeError, AttributeError, OSError) as error:
        version = installed("torchvision")
        if version is None:
            raise UserError(f"{wanted_by} needs torchvision, which is not installed: pip install torchvision") from None
        raise UserError(
            f"{wanted_by} needs torchvision, but the installed {version} does not work with torch {torch.__version__} "
            f"({(str(error).strip().splitlines() or [type(error).__name__])[0]}): install the two that belong together"
        ) from error
