"""Which options of a training run go together, and which values they may have."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from mpidec import compress, optim
from mpidec.errors import UserError
from mpidec.names import canonical

if TYPE_CHECKING:
    from mpidec.train.config import Config


def fitting_compressor(algorithm: str, entry: optim.Entry, given: str | None) -> str | None:
    """The spelling of the ``given`` compressor, or the algorithm's own choice, ``None`` where it takes none.

    Raises ``UserError`` for one that does not fit the algorithm.
    """
    if given is None:
        return entry.compressors[0] if entry.compressors else None
    name = canonical("compressor", given, compress.known())
    if not entry.compressors:
        raise UserError(f"{algorithm} has a message of its own and takes no compressor: leave out --compressor {name}")
    # Whether a foreign one fits, its class and the algorithm's must say.
    if name in compress.COMPRESSORS and name not in entry.compressors:
        takes = [one for one, other in optim.ALGORITHMS.items() if name in other.compressors]
        raise UserError(
            f"{algorithm} does not work with the compressor {name}, which loses what is never sent again: "
            f"take {', '.join(entry.compressors)}, or one of the algorithms {', '.join(takes)}"
        )
    return name


def refuse_strangers(config: Config) -> None:
    """Raise ``UserError`` for an option that the chosen algorithm, or the chosen compressor, does not have."""
    algorithms = {name: one.options for name, one in optim.ALGORITHMS.items()}
    for kind, chosen, options in (
        ("algorithm", config.algorithm, algorithms),
        ("compressor", config.compressor, compress.OPTIONS),
    ):
        own = options.get(chosen or "", {})
        for option in dict.fromkeys(name for its in options.values() for name in its):
            if option not in own and getattr(config, option) is not None:
                users = [name for name, its in options.items() if option in its]
                uses = f"this run uses {chosen}" if chosen else f"{config.algorithm} takes none"
                raise UserError(
                    f"--{option.replace('_', '-')} belongs to the {kind}{'s' * (len(users) > 1)} {', '.join(users)}, "
                    f"but {uses}: leave it out, or choose --{kind} {users[0]}"
                )
    if config.gamma == "auto" and optim.entry(config.algorithm).needs != "contraction":
        raise UserError(
            f"--gamma auto is for rules that remember what is not sent, but {config.algorithm} stalls at every gamma: "
            "give a number"
        )
    for kind, chosen, known in (
        ("algorithm", config.algorithm, list(optim.ALGORITHMS)),
        ("compressor", config.compressor, [*compress.COMPRESSORS, None]),
    ):
        if getattr(config, f"{kind}_options") is not None and chosen in known:
            raise UserError(
                f"--{kind}-options are for the {kind}s of other packages, but this run uses {chosen or 'none'}: "
                "its options are flags of their own"
            )


def refuse_out_of_range(config: Config) -> None:
    """Raise ``UserError`` for a value that an option cannot have."""
    endless = float("inf")
    ranges: tuple[tuple[str, Callable[[Any], bool], str], ...] = (
        ("epochs", lambda v: v >= 1, "at least 1"),
        ("batch_size", lambda v: v >= 1, "at least 1"),
        ("lr", lambda v: 0 < v < endless, "above 0 and finite"),
        ("momentum", lambda v: 0 <= v < 1, "at least 0 and below 1"),
        ("weight_decay", lambda v: 0 <= v < endless, "at least 0 and finite"),
        ("seed", lambda v: 0 <= v < 2**63, "at least 0 and below 2^63"),
        ("gamma", lambda v: v == "auto" or 0 < v <= 1, "above 0 and at most 1, or auto"),
        ("resync", lambda v: v >= 0, "at least 0"),
        ("period", lambda v: v >= 1, "at least 1"),
        ("start_epoch", lambda v: 0 <= v < endless, "at least 0 and finite"),
        ("clip", lambda v: 0 < v < endless, "above 0 and finite"),
        ("ratio", lambda v: 0 < v <= 1, "above 0 and at most 1"),
        ("warmup_epochs", lambda v: 0 <= v < endless, "at least 0 and finite"),
        ("bits", lambda v: 1 <= v <= 8, "1 to 8"),
    )
    for name, fits, range_ in ranges:
        value = getattr(config, name)
        if value is not None and not fits(value):
            raise UserError(f"--{name.replace('_', '-')} must be {range_}: got {value}")


def parsed(kind: str, options: str | None) -> dict[str, Any]:
    """``NAME=VALUE,...`` as a dictionary, with numbers and truth values for what looks like one.

    Raises ``UserError`` for another form.
    """
    made: dict[str, Any] = {}
    for one in options.split(",") if options else []:
        name, equals, value = one.partition("=")
        if not equals or not name.strip().isidentifier():
            raise UserError(f"--{kind}-options are NAME=VALUE, separated by commas: got {one!r}")
        made[name.strip()] = _value(value.strip())
    return made


def _value(text: str) -> Any:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return text
