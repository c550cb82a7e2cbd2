"""A cluster and an authority for each test, and Apache Kafka for the tests of a file."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.exporters.otlp.certificates import Authority
from tests.interop.kafka.broker import Broker, running_broker
from tests.libraries.clients.kafka.mock_cluster import MockCluster, mock_cluster


@pytest.fixture
def cluster() -> Iterator[MockCluster]:
    with mock_cluster() as one:
        yield one


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with running_broker(tmp_path_factory.mktemp("kafka")) as broker:
        yield broker
