"""The settings of a delivery have the Collector's defaults, and contradictory ones are refused."""

from itertools import islice
from typing import Any

import pytest

from otel_zernel.delivery_config import LOCAL, RemoteExporterConfig, RetryConfig
from otel_zernel.engine.delivery.sending import backoff


def test_backoff_grows_to_its_limit_within_the_randomization() -> None:
    delays = list(islice(backoff(RetryConfig()), 50))
    assert 2.5 <= delays[0] <= 7.5
    assert 3.75 <= delays[1] <= 11.25
    assert all(15 <= delay <= 45 for delay in delays[10:])


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"sending_queue": {"batch": {"min_size": 10, "max_size": 5}}}, "max_size"),
        ({"sending_queue": {"queue_size": 0}}, "greater than or equal to 1"),
        ({"retry_on_failure": {"randomization_factor": 2}}, "less than or equal to 1"),
    ],
)
def test_contradictory_settings_are_refused(config: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        RemoteExporterConfig.model_validate(config)


def test_the_defaults_are_the_collectors() -> None:
    config = RemoteExporterConfig()
    queue, retry = config.sending_queue, config.retry_on_failure
    assert (config.timeout, queue.num_consumers, queue.queue_size, queue.sizer) == (5.0, 10, 1000, "requests")
    assert (retry.initial_interval, retry.multiplier, retry.max_interval, retry.max_elapsed_time) == (5, 1.5, 30, 300)
    assert LOCAL.sending_queue.num_consumers == 1
