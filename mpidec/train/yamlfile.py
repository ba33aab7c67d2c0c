"""YAML files that hold options, read with care, and without what knows the options."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mpidec.errors import UserError


def read(path: str | Path) -> dict[Any, Any]:
    """The options in the file ``path``. Raises ``UserError`` where it cannot be read, or holds something else."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is no UTF-8 text"
        raise UserError(f"the configuration {path} cannot be read: {reason}") from None
    return mapping(text, path, "a mapping, such as 'lr: 0.1', one option a line")


def mapping(text: str, path: str | Path, what: str) -> dict[Any, Any]:
    """The YAML ``text`` of the file ``path``. Raises ``UserError`` where it is broken or is not ``what`` it must be."""
    import yaml

    try:
        content = yaml.safe_load(text)
    except Exception as error:  # the library raises whatever the types it builds raise
        raise UserError(f"{path} is no valid YAML: {' '.join(str(error).split())}") from None
    if not isinstance(content, dict):
        raise UserError(f"{path} must hold {what}: got {type(content).__name__}")
    return content
