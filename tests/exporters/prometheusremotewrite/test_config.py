"""Wrong settings are refused with a sentence."""

import pytest
from pydantic import ValidationError

from otel_zernel_exporters.prometheusremotewrite import PrometheusRemoteWriteExporter

URL = "http://localhost:9090/api/v1/write"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, "required: set the URL"),
        ({"endpoint": "localhost:9090"}, "is not a URL"),
        ({"endpoint": "http://user:pw@localhost/api"}, "contains a password"),
        ({"endpoint": URL, "compression": "gzip"}, "snappy"),
        ({"endpoint": URL, "headers": {"Content-Type": "text/plain"}}, "set by the protocol"),
        ({"endpoint": URL, "headers": {"content-encoding": "gzip"}}, "set by the protocol"),
        ({"endpoint": URL, "headers": {"user-agent": "curl"}}, "set by the protocol"),
        ({"endpoint": URL, "headers": {"X-Prometheus-Remote-Write-Version": "1.0.0"}}, "set by the protocol"),
        ({"endpoint": URL, "sending_queue": {"num_consumers": 10}}, "must arrive in order"),
        ({"endpoint": URL, "moving_bounds": "as_is"}, "'exponential' or 'fixed'"),
        ({"endpoint": URL, "protobuf_message": "3.0"}, "io.prometheus.write.v2.Request"),
        ({"endpoint": URL, "max_batch_size_bytes": 10}, "10000"),
    ],
)
def test_a_mistake_is_named(settings: dict[str, object], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        PrometheusRemoteWriteExporter.Config.model_validate(settings)


def test_the_defaults_are_those_of_the_collector() -> None:
    config = PrometheusRemoteWriteExporter.Config.model_validate({"endpoint": URL, "retry_on_failure": {}})
    assert config.retry_on_failure.initial_interval == 0.05
    assert config.remote_write_queue.num_consumers == 5
    assert config.max_batch_size_bytes == 3_000_000
    assert config.target_info.enabled
    assert not config.send_metadata
