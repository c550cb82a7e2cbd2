"""The keys and defaults are those of the OpenTelemetry Collector, and a mistake is one sentence at its path."""

from typing import Any

import pytest
from pydantic import ValidationError

from otel_zernel.config.load import load
from otel_zernel.config.schema import validate
from otel_zernel.errors import ConfigError
from otel_zernel.registry import Registry
from otel_zernel_receivers.otlp.config import OtlpReceiverConfig

UPSTREAM = """
protocols:
  grpc:
    endpoint: 0.0.0.0:4317
    transport: tcp
    tls: {cert_file: c, key_file: k, client_ca_file: a, reload_interval: 1m}
    max_recv_msg_size_mib: 16
    max_concurrent_streams: 100
    keepalive:
      server_parameters:
        {max_connection_idle: 11s, max_connection_age: 12s, max_connection_age_grace: 13s, time: 30s, timeout: 5s}
      enforcement_policy: {min_time: 10s, permit_without_stream: true}
    auth: {authenticator: bearertokenauth}
    include_metadata: false
    middlewares: []
  http:
    endpoint: 0.0.0.0:4318
    transport: tcp
    tls: {cert_pem: c, key_pem: k, min_version: "1.3"}
    cors: {allowed_origins: ["*"], allowed_headers: ["*"], exposed_headers: [x], max_age: 7200}
    auth: {authenticator: basicauth, request_params: [token]}
    max_request_body_size: 1000
    include_metadata: false
    response_headers: {x: y}
    compression_algorithms: ["", gzip, zstd, zlib, deflate]
    read_timeout: 1s
    read_header_timeout: 1s
    write_timeout: 1s
    idle_timeout: 1s
    keep_alives_enabled: false
    traces_url_path: /t
    metrics_url_path: /m
    logs_url_path: /l
    middlewares: []
"""


def check(text: str) -> OtlpReceiverConfig:
    import yaml

    return OtlpReceiverConfig.model_validate(yaml.safe_load(text))


def test_every_key_of_the_opentelemetry_collector_is_accepted() -> None:
    config = check(UPSTREAM)
    assert config.protocols.grpc is not None
    assert config.protocols.http is not None
    assert config.protocols.grpc.keepalive.server_parameters.max_connection_age == 12.0
    assert config.protocols.http.cors is not None
    assert config.protocols.http.cors.max_age == 7200


def test_null_means_the_defaults_of_the_opentelemetry_collector() -> None:
    config = check("protocols: {grpc: , http: }")
    grpc, http = config.protocols.grpc, config.protocols.http
    assert grpc is not None
    assert http is not None
    assert (str(grpc.address), str(http.address)) == ("localhost:4317", "localhost:4318")
    assert http.max_request_body_size == 20971520
    assert (http.metrics_url_path, http.traces_url_path, http.logs_url_path) == (
        "/v1/metrics",
        "/v1/traces",
        "/v1/logs",
    )


def test_a_protocol_that_is_not_listed_is_not_served() -> None:
    assert check("protocols: {grpc: }").protocols.http is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"protocols": {}}, "list at least one protocol: grpc, http or both"),
        ({"protocols": None}, "list at least one protocol: grpc, http or both"),
        ({}, "list at least one protocol: grpc, http or both"),
        ({"protocols": {"grpc": {"endpoint": "localhost"}}}, "not an address to listen on: 'localhost'"),
        ({"protocols": {"grpc": {"include_metadata": True}}}, "batches carry no metadata of their clients"),
        ({"protocols": {"http": {"middlewares": [{"id": "a"}]}}}, "there are no middleware extensions"),
        ({"protocols": {"http": {"compression_algorithms": ["br"]}}}, "'br' is not supported; use some of gzip, zstd"),
        ({"protocols": {"http": {"metrics_url_path": ":m"}}}, "':m' is not a URL path"),
        ({"protocols": {"http": {"metrics_url_path": "/v1/logs"}}}, "must differ"),
        ({"protocols": {"http": {"transport": "unix"}}}, "'localhost:4318' is not the path of a socket"),
        ({"protocols": {"http": {"response_headers": {"a b": "c"}}}}, "'a b' is not a valid header name"),
        ({"protocols": {"http": {"response_headers": {"a": "\n"}}}}, "has characters outside printable ASCII"),
        ({"protocols": {"grpc": {"tls": {}}}}, "a server needs a certificate and its key"),
        (
            {"protocols": {"grpc": {"transport": "unix", "endpoint": "@otlp"}}},
            "'@otlp' is not the path of a socket; write /run/otlp.sock",
        ),
    ],
)
def test_a_mistake_is_one_sentence(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError) as refused:
        OtlpReceiverConfig.model_validate(options)
    assert len(refused.value.errors()) == 1
    assert message in str(refused.value)


def test_a_mistake_is_reported_once_at_its_path() -> None:
    text = "{receivers: {otlp: {protocols: {grpc: {keepalive: {server_parameters: {tiem: 1s}}}}}}}"
    with pytest.raises(ConfigError) as refused:
        validate(load([f"yaml:{text}"], [], {}), Registry.installed(), {})
    strs = [str(problem) for problem in refused.value.problems if "tiem" in str(problem)]
    assert len(strs) == 1
    assert strs[0].startswith("receivers::otlp::protocols::grpc::keepalive::server_parameters::tiem")


def test_values_of_response_headers_are_never_printed() -> None:
    config = check("protocols: {http: {response_headers: {x-token: hunter2}}}")
    assert "hunter2" not in repr(config) + config.model_dump_json()
