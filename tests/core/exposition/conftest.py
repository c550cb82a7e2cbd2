"""Fixtures for the tests of the page."""

import pytest

from tests.core.exposition.shown import Shown


@pytest.fixture
def shown() -> Shown:
    return Shown()
