"""Fixtures for the tests of the page."""

import pytest

from tests.libraries.prometheus.shown import Shown


@pytest.fixture
def shown() -> Shown:
    return Shown()
