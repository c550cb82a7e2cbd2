"""A cluster and an authority for each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.core.kafka.mock_cluster import MockCluster, mock_cluster
from tests.exporters.otlp.certificates import Authority


@pytest.fixture
def cluster() -> Iterator[MockCluster]:
    with mock_cluster() as one:
        yield one


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)
