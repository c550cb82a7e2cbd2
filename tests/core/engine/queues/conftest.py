"""A machine for each test."""

import pytest

from tests.core.engine.queues.machine import Machine


@pytest.fixture
def machine() -> Machine:
    return Machine()
