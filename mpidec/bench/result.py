"""One figure of a benchmark, and whether it reaches its target."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Result:
    """``value`` in ``unit``, of a ``case`` of a ``part``, and its ``ratio`` to the ``yardstick`` of the same run.

    ``target``: what the ratio (where there is none, the value) is to reach; ``met``: whether it did. Both are ``None``
    where nothing was asked for.
    """

    part: str
    case: str
    value: float
    unit: str
    yardstick: str | None = None
    ratio: float | None = None
    target: float | None = None
    met: bool | None = None

    @classmethod
    def of(
        cls,
        part: str,
        case: str,
        value: float,
        unit: str,
        yardstick: str | None = None,
        ratio: float | None = None,
        *,
        at_most: float | None = None,
        at_least: float | None = None,
    ) -> Result:
        """With the target ``at_most`` or ``at_least``, one of them or none.

        >>> Result.of("compress", "sign", 3e-3, "s", "copy", 0.9, at_most=1.0).met
        True
        """
        judged = value if ratio is None else ratio
        if at_most is not None:
            return cls(part, case, value, unit, yardstick, ratio, at_most, judged <= at_most)
        if at_least is not None:
            return cls(part, case, value, unit, yardstick, ratio, at_least, judged >= at_least)
        return cls(part, case, value, unit, yardstick, ratio)

    def record(self) -> dict[str, Any]:
        """The fields by name, for JSON."""
        return asdict(self)
