"""Every row of the table on ranks that are threads of this process."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mpidec import World, run_on_threads
from support.cases import CASES
from support.table import TABLE


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
@pytest.mark.parametrize("name", TABLE)
def test_row(name: str, case: Callable[[World, str], None], size: int) -> None:
    run_on_threads(lambda world: case(world, name), size)
