"""One case of every algorithm on real ranks, through all that the table asks of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mpidec import World
from support.cases import CASES
from support.table import ONE_EACH

pytestmark = pytest.mark.mpi


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
@pytest.mark.parametrize("name", ONE_EACH.values())
def test_algorithm(world: World, name: str, case: Callable[[World, str], None]) -> None:
    case(world, name)
