"""``python -m mpidec.train``: options first, so that help and mistakes cost nothing, then torch, MPI and the run."""

from __future__ import annotations

from mpidec.cli import parse, run
from mpidec.launcher import limit_threads
from mpidec.train.config import Config
from mpidec.train.configfile import expand


def main() -> None:
    """Train with the options of the command line."""
    limit_threads()
    config = parse(Config, "python -m mpidec.train", expand)

    from mpidec.train.job import train

    train(config)


if __name__ == "__main__":
    run(main)
