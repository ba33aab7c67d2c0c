"""``python -m mpidec.simulate COMMAND``: options first, then torch and the simulation."""

from __future__ import annotations

from pkgutil import resolve_name

from mpidec.cli import any_of, parse, refuse_ranks, run
from mpidec.simulate import options
from mpidec.simulate.memory import keep_memory
from mpidec.train.configfile import expand

COMMANDS = {
    "consensus": options.Consensus,
    "logistic": options.Logistic,
    "network": options.Network,
    "tune": options.Tune,
    "pattern": options.Pattern,
    "scale": options.Scale,
}


def main() -> None:
    """Run the simulation that the command line names."""
    chosen = parse(any_of(COMMANDS), "python -m mpidec.simulate", _expand)
    if not (isinstance(chosen, options.Scale) and chosen.measure):
        refuse_ranks("all ranks of a simulation are in one process")
    keep_memory()
    name = next(name for name, kind in COMMANDS.items() if type(chosen) is kind)
    resolve_name(f"mpidec.simulate.{name}:simulate")(chosen)


def _expand(arguments: list[str]) -> list[str]:
    """Options of a ``--config`` file follow the name of the command."""
    return arguments[:1] + expand(arguments[1:]) if arguments[:1] == ["network"] else arguments


if __name__ == "__main__":
    run(main)
