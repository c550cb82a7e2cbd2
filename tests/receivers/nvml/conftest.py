"""A machine with a stand-in for NVIDIA's driver: `driver("h200")` boots it."""

from collections.abc import Callable, Iterator

import pytest

from tests.receivers.nvml.driver import Driver
from tests.receivers.nvml.driver import driver as standin


@pytest.fixture
def driver() -> Iterator[Callable[[str], Driver]]:
    """Boots a scenario. At the end, releases threads that hang in the driver."""
    controls = standin()
    yield controls.boot
    controls.apply("gpu 0-7", "hang -", "driver", "hang -", "hang count -")
