"""The environment variables of the former daemons are defaults, and the configuration wins."""

import pytest
from pydantic import ValidationError

from otel_zernel_exporters.prometheus.config import PrometheusConfig
from otel_zernel_exporters.websocket.config import WebSocketConfig

ENVIRON = {"ZERNEL_WS_PORT": "7001", "ZERNEL_PUSH_INTERVAL_MS": "250", "ZERNEL_METRICS_PORT": "7002"}


def feed(environ: dict[str, str], **fields: object) -> WebSocketConfig:
    return WebSocketConfig.model_validate(fields, context={"environ": environ})


def page(environ: dict[str, str], **fields: object) -> PrometheusConfig:
    return PrometheusConfig.model_validate(fields, context={"environ": environ})


def test_without_variables_the_ports_are_those_of_the_contract() -> None:
    assert (str(feed({}).endpoint), feed({}).push_interval) == ("localhost:9092", 1)
    assert str(page({}).endpoint) == "localhost:9091"


def test_variables_are_defaults() -> None:
    assert (str(feed(ENVIRON).endpoint), feed(ENVIRON).push_interval) == ("localhost:7001", 0.25)
    assert str(page(ENVIRON).endpoint) == "localhost:7002"


def test_the_configuration_wins() -> None:
    given = feed(ENVIRON, endpoint="0.0.0.0:9", push_interval="2s")
    assert (str(given.endpoint), given.push_interval) == ("0.0.0.0:9", 2)
    assert str(page(ENVIRON, endpoint="0.0.0.0:9").endpoint) == "0.0.0.0:9"


def test_a_page_on_the_api_needs_no_port_of_its_own() -> None:
    assert page(ENVIRON, api="api").api == "api"


@pytest.mark.parametrize(
    ("variable", "value", "sentence"),
    [
        ("ZERNEL_WS_PORT", "http", "ZERNEL_WS_PORT: 'http' is not a port"),
        ("ZERNEL_WS_PORT", "65536", "ZERNEL_WS_PORT: '65536' is not a port"),
        ("ZERNEL_PUSH_INTERVAL_MS", "1s", "ZERNEL_PUSH_INTERVAL_MS: '1s' is not a number of milliseconds"),
        ("ZERNEL_PUSH_INTERVAL_MS", "1", "greater than or equal to 0.1"),
    ],
)
def test_a_wrong_variable_is_named(variable: str, value: str, sentence: str) -> None:
    with pytest.raises(ValidationError, match=sentence):
        feed({variable: value})


def test_a_wrong_metrics_port_is_named() -> None:
    with pytest.raises(ValidationError, match="ZERNEL_METRICS_PORT: '-1' is not a port"):
        page({"ZERNEL_METRICS_PORT": "-1"})
