"""Options as the command line gives them, and as a run writes them down."""

from __future__ import annotations

from pathlib import Path

import tyro
import yaml

from mpidec.train.config import Config
from mpidec.train.configfile import expand


def parsed(*arguments: str) -> Config:
    """What ``python -m mpidec.train ARGUMENTS`` would run."""
    return tyro.cli(Config, args=expand(list(arguments)))


def saved(config: Config, folder: Path) -> str:
    """The path of ``config`` in the form of a run's own file, in ``folder``."""
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(config.resolved()))
    return str(path)
