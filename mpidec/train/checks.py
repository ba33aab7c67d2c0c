"""Which options of a training run go together, and which values they may have."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from mpidec import compress, optim
from mpidec.errors import UserError
from mpidec.names import canonical
from mpidec.train.names import takes

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
        ("accumulate", lambda v: v >= 1, "at least 1"),
        ("clip_norm", lambda v: 0 < v < endless, "above 0 and finite"),
        ("lr_factor", lambda v: 0 < v < endless, "above 0 and finite"),
        ("lr_warmup", lambda v: 0 <= v < endless, "at least 0 and finite"),
        ("workers", lambda v: 0 <= v <= 64, "0 to 64"),
        ("image_size", lambda v: v >= 8, "at least 8"),
        ("sequence_length", lambda v: v >= 1, "at least 1"),
        ("save_every", lambda v: v >= 0, "at least 0"),
        ("save_every_steps", lambda v: v >= 0, "at least 0"),
        ("keep", lambda v: v >= 1, "at least 1"),
        ("stop_after", lambda v: v >= 1, "at least 1"),
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


def refuse_step_strangers(config: Config) -> None:
    """Raise ``UserError`` for options of the local step that do not go together."""
    if config.owns_direction and config.optimizer not in (None, "SGD"):
        raise UserError(
            f"{config.algorithm} makes the direction of the step itself, around plain SGD: leave out --optimizer "
            f"{config.optimizer}"
        )
    for option, fits, needs in (
        ("milestones", config.schedule == "multistep", "--schedule multistep"),
        ("lr_factor", config.schedule == "multistep", "--schedule multistep"),
        ("lr_warmup", config.schedule != "onecycle", "another --schedule than onecycle, which rises by itself"),
        ("clip_norm", not config.owns_direction, "an algorithm that does not make the direction of the step itself"),
    ):
        if getattr(config, option) and not fits:
            raise UserError(f"--{option.replace('_', '-')} needs {needs}: leave it out")
    for option in ("data_dir", "download", "image_size", "sequence_length", "workers"):
        if getattr(config, option) and option.replace("data_dir", "directory") not in takes(config.data):
            raise UserError(f"--{option.replace('_', '-')} has no effect on --data {config.data}: leave it out")
    if config.decay != "all" and config.owns_direction:
        raise UserError(
            f"{config.algorithm} owns the weight decay and applies it to all parameters: leave out --decay "
            f"{config.decay}, or take --weight-decay 0"
        )
    if config.amp != "none" and config.dtype != "float32":
        raise UserError(f"--amp {config.amp} mixes with float32: leave out --dtype {config.dtype}")
    if config.milestones is not None:
        milestones(config.milestones)
    if config.resume and config.resume_as:
        raise UserError("--resume goes on with the same run and --resume-as with a new one: take one of them")
    if config.resume not in (None, "auto") and config.out is not None:
        raise UserError(f"--resume {config.resume} goes on in that folder: leave out --out {config.out}")
    if config.resume == "auto" and not (config.save_every or config.save_every_steps or config.stop_after):
        raise UserError("--resume auto needs checkpoints to go on from: say when to write them, as by --save-every 1")
    if config.resume == "auto" and config.out is None:
        raise UserError("--resume auto looks for checkpoints in the folder --out: name it")


# What may differ when a run goes on, without a number changing.
FREE = ("data_dir", "workers", "save_every", "save_every_steps", "keep", "tensorboard", "trace")


def changed(config: Config, saved: Mapping[str, Any]) -> str:
    """In which option ``config`` differs from what a run was begun with, and how; empty where it may go on."""
    now = config.resolved()
    # Where nothing depends on the length of the run, it may become longer.
    free = (*FREE, "epochs") if config.schedule == "constant" else FREE
    for name in [*now, *saved]:
        if name not in free and now.get(name) != saved.get(name):
            return f"--{name.replace('_', '-')} {saved.get(name)}, not {now.get(name)}"
    return ""


def milestones(text: str) -> list[float]:
    """The fractions of a run in ``text``, rising. Raises ``UserError`` for another form."""
    with suppress(ValueError):
        values = [float(one) for one in text.split(",")]
        if all(0 < one < 1 for one in values) and values == sorted(set(values)):
            return values
    raise UserError(f"--milestones are rising fractions of the run between 0 and 1, such as 0.5,0.75: got {text!r}")


def parsed(kind: str, options: str | None) -> dict[str, Any]:
    """``NAME=VALUE,...`` as a dictionary, with numbers and truth values for what looks like one.

    Raises ``UserError`` for another form.
    """
    made: dict[str, Any] = {}
    # Commas inside brackets belong to a value.
    for one in re.split(r",(?![^([]*[)\]])", options) if options else []:
        name, equals, value = one.partition("=")
        if not equals or not name.strip().isidentifier():
            raise UserError(f"--{kind}-options are NAME=VALUE, separated by commas: got {one!r}")
        made[name.strip()] = _value(value.strip())
    return made


def _value(text: str) -> Any:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    with suppress(ValueError, SyntaxError):
        return ast.literal_eval(text)
    return text
