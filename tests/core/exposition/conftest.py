"""What the tests of the page share."""

import pytest

from tests.core.exposition.shown import Shown


@pytest.fixture
def shown() -> Shown:
    return Shown()
