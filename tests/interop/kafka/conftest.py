"""A broker of Apache Kafka for the tests of a file."""

from collections.abc import Iterator

import pytest

from tests.interop.kafka.broker import Broker, running_broker


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with running_broker(tmp_path_factory.mktemp("kafka")) as broker:
        yield broker
