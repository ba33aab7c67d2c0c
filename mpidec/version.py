"""Versions: the package's own, which a build reads from here without importing anything, and those of others."""

from functools import cache
from importlib import metadata

__version__ = "0.1.0"


@cache
def installed(package: str) -> str | None:
    """The version of an installed package, or ``None``."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
