"""The ranks that the tests of this folder run on."""

import pytest

from mpidec import World, init


@pytest.fixture(scope="session")
def world() -> World:
    return init(device="cpu")
