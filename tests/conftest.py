"""The number of examples in property tests: 60 in `make test`, 5,000 in `make soak`. And free ports."""

import os
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, settings

from tests.free_ports import free_port

# Hypothesis would fail a test for whose examples a busy machine needs long.
settings.register_profile("default", max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile(
    "soak", max_examples=5_000, deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


@pytest.fixture(scope="session")
def unused_tcp_port_factory() -> Callable[[], int]:
    """In place of pytest-asyncio's, whose ports the kernel may give to another connection meanwhile."""
    return free_port


@pytest.fixture
def unused_tcp_port() -> int:
    return free_port()
