"""A cluster and an authority for each test, and Apache Kafka for the tests of a file."""

from collections.abc import Iterator

import pytest

from tests.interop.kafka.broker import Broker, running_broker
from tests.libraries.clients.kafka.mock_cluster import MockCluster, mock_cluster


@pytest.fixture
def cluster() -> Iterator[MockCluster]:
    with mock_cluster() as one:
        yield one


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with running_broker(tmp_path_factory.mktemp("kafka")) as broker:
        yield broker
