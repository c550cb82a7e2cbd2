"""A machine and a queue for each test."""

import pytest

from tests.core.engine.queues.machine import Machine
from tests.core.engine.wiring import RecordingQueue


@pytest.fixture
def machine() -> Machine:
    return Machine()


@pytest.fixture
def queue() -> RecordingQueue:
    return RecordingQueue()
