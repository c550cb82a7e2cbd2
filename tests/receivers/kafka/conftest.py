"""A cluster for each test."""

from collections.abc import Iterator

import pytest

from tests.core.kafka.mock_cluster import MockCluster, mock_cluster


@pytest.fixture
def cluster() -> Iterator[MockCluster]:
    with mock_cluster() as one:
        yield one
