"""The configuration of the OTLP exporters: meaning and errors."""

from typing import Any

import pytest
from pydantic import ValidationError

from otel_zernel.batch import Signal
from otel_zernel_exporters.otlp.config import OtlpGrpcConfig, OtlpHttpConfig
from tests.exporters.otlp.exporting import both_configs


def mistakes(config: type[OtlpGrpcConfig | OtlpHttpConfig], fields: dict[str, Any]) -> str:
    with pytest.raises(ValidationError) as caught:
        config.model_validate(fields)
    return "\n".join(f"{'::'.join(map(str, error['loc']))}: {error['msg']}" for error in caught.value.errors())


@pytest.mark.parametrize(
    ("endpoint", "insecure", "target", "plaintext"),
    [
        ("localhost:4317", False, "localhost:4317", False),
        ("localhost:4317", True, "localhost:4317", True),
        ("http://tempo:4317", False, "tempo:4317", True),
        ("https://tempo:4317/", True, "tempo:4317", False),
        ("[::1]:4317", False, "[::1]:4317", False),
        ("http://[::1]:4317", False, "[::1]:4317", True),
        ("dns:///tempo:4317", False, "dns:///tempo:4317", False),
        ("unix:/run/otlp.sock", True, "unix:/run/otlp.sock", True),
    ],
)
def test_a_grpc_endpoint_gives_the_target_and_whether_to_use_plaintext(
    endpoint: str, insecure: bool, target: str, plaintext: bool
) -> None:
    config = OtlpGrpcConfig.model_validate({"endpoint": endpoint, "tls": {"insecure": insecure}})
    assert (config.target, config.plaintext) == (target, plaintext)


@pytest.mark.parametrize("endpoint", ["localhost", "http://localhost", "http://tempo:4317/v1", "ftp://a:1", "a b:1"])
def test_a_grpc_endpoint_without_a_port_or_with_a_path_is_a_mistake(endpoint: str) -> None:
    assert "endpoint: Value error" in mistakes(OtlpGrpcConfig, {"endpoint": endpoint})


@pytest.mark.parametrize(
    "endpoint", ["localhost:4318", "ftp://localhost", "http://", "http://user:secret@tempo", "http://a:99999"]
)
def test_an_http_endpoint_is_a_url_without_a_password(endpoint: str) -> None:
    text = mistakes(OtlpHttpConfig, {"endpoint": endpoint})
    assert "endpoint: Value error" in text
    assert "secret" not in text


def test_the_endpoint_is_required() -> None:
    assert "endpoint: Value error, required: set the server to send to, for example localhost:4317" in mistakes(
        OtlpGrpcConfig, {}
    )
    assert "endpoint: Value error, required: set the server to send to, for example http://localhost:4318" in mistakes(
        OtlpHttpConfig, {}
    )


@pytest.mark.parametrize(
    ("fields", "signal", "url"),
    [
        (
            {"endpoint": "https://mimir/otlp/", "traces_endpoint": "http://a"},
            "metrics",
            "https://mimir/otlp/v1/metrics",
        ),
        ({"endpoint": "https://mimir/otlp/", "traces_endpoint": "http://tempo/x"}, "traces", "http://tempo/x"),
        ({"metrics_endpoint": "http://mimir/otlp"}, "metrics", "http://mimir/otlp"),
        ({"metrics_endpoint": "http://mimir/otlp"}, "traces", ""),
        ({"endpoint": "https://a.example/otlp/?token=b"}, "logs", "https://a.example/otlp/v1/logs?token=b"),
    ],
)
def test_http_urls_are_the_endpoint_and_the_signals_path_unless_set(
    fields: dict[str, str], signal: Signal, url: str
) -> None:
    assert OtlpHttpConfig.model_validate(fields).url(signal) == url


def test_timeouts_are_those_of_otelcol() -> None:
    assert OtlpGrpcConfig(endpoint="a:1").timeout == 5
    assert OtlpHttpConfig(endpoint="http://a").timeout == 30


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"compression": "zstd"}, "compression: Value error, gRPC for Python does not support zstd"),
        ({"tls": {"insecure_skip_verify": True}}, "tls: Value error, insecure_skip_verify: gRPC for Python always"),
        ({"tls": {"cert_file": "a.pem"}}, "tls: Value error, cert_file and key_file belong together"),
        ({"headers": {"grpc-timeout": "1"}}, "names that start with grpc- are reserved"),
        ({"headers": {"a b": "1"}}, "'a b' is not a valid header name"),
    ],
)
def test_options_that_grpc_does_not_support_are_errors_with_advice(fields: dict[str, Any], text: str) -> None:
    assert text in mistakes(OtlpGrpcConfig, {"endpoint": "a:1", **fields})


def test_the_error_of_an_invalid_header_has_its_name_but_not_its_value() -> None:
    text = mistakes(OtlpHttpConfig, {"endpoint": "http://a", "headers": {"authorization": "geheim\n"}})
    assert "the value of 'authorization' has characters outside printable ASCII" in text
    assert "geheim" not in text


@both_configs
def test_no_compression_may_be_written_as_in_otelcol(config: type[OtlpGrpcConfig | OtlpHttpConfig]) -> None:
    for word in ("none", "", None):
        assert config.model_validate({"endpoint": "http://a:1", "compression": word}).compression == "none"


ENVIRON = {
    "OTEL_EXPORTER_OTLP_ENDPOINT": "http://from-environment:4317",
    "OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer%20abc, x-team=ml",
    "OTEL_EXPORTER_OTLP_COMPRESSION": "none",
    "OTEL_EXPORTER_OTLP_TIMEOUT": "2500",
    "OTEL_EXPORTER_OTLP_CERTIFICATE": "/ca.pem",
    "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE": "/client.pem",
    "OTEL_EXPORTER_OTLP_CLIENT_KEY": "/client.key",
    "OTEL_EXPORTER_OTLP_INSECURE": "true",
}


@both_configs
def test_missing_keys_come_from_the_environment_and_are_printed(config: type[OtlpGrpcConfig | OtlpHttpConfig]) -> None:
    shown = config.model_validate({}, context={"environ": ENVIRON}).model_dump(mode="json", exclude_unset=True)
    assert shown == {
        "endpoint": "http://from-environment:4317",
        "headers": {"authorization": "**********", "x-team": "**********"},
        "compression": "none",
        "timeout": "2500ms",
        "tls": {"ca_file": "/ca.pem", "cert_file": "/client.pem", "key_file": "/client.key", "insecure": True},
    }


def test_what_the_user_set_is_not_overridden() -> None:
    fields = {"endpoint": "mine:4317", "headers": {"x": "y"}, "timeout": "1s", "tls": {"ca_file": "mine.pem"}}
    config = OtlpGrpcConfig.model_validate(fields, context={"environ": ENVIRON})
    assert (config.endpoint, config.timeout, config.tls.ca_file) == ("mine:4317", 1.0, "mine.pem")
    assert list(config.headers) == ["x"]
    assert config.tls.key_file == "/client.key"


def test_an_environment_percent_decodes_headers() -> None:
    config = OtlpHttpConfig.model_validate({}, context={"environ": ENVIRON})
    assert config.headers["authorization"].get_secret_value() == "Bearer abc"


@pytest.mark.parametrize("signal", ["metrics", "logs"])
def test_a_signals_endpoint_comes_from_the_environment_for_http(signal: Signal) -> None:
    environ = {f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT": "http://a/otlp"}
    config = OtlpHttpConfig.model_validate({}, context={"environ": environ})
    assert (config.url(signal), config.url("traces")) == ("http://a/otlp", "")


def test_without_a_context_the_environment_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://a:4317")
    assert "endpoint: Value error, required" in mistakes(OtlpGrpcConfig, {})


@pytest.mark.parametrize(("name", "text"), [("TIMEOUT", "10s"), ("HEADERS", "novalue")])
def test_the_error_of_an_invalid_variable_has_its_name(name: str, text: str) -> None:
    with pytest.raises(ValidationError, match=f"OTEL_EXPORTER_OTLP_{name}"):
        OtlpGrpcConfig.model_validate({}, context={"environ": {f"OTEL_EXPORTER_OTLP_{name}": text}})


@pytest.mark.parametrize("endpoint", ["ftp://a:1/?token=geheim", "ftp://me:geheim@a:1", "http://:1?token=geheim"])
def test_the_error_of_an_invalid_endpoint_does_not_print_its_token(endpoint: str) -> None:
    for config in (OtlpHttpConfig, OtlpGrpcConfig):
        text = mistakes(config, {"endpoint": endpoint})
        assert "endpoint: Value error" in text
        assert "geheim" not in text


@pytest.mark.parametrize("text", ["Bearer geheim", "x-team=ml,geheim", "x-team=ml,Bearer geheim=1", "%67eheim%20x=1"])
@both_configs
def test_malformed_headers_of_the_environment_are_not_printed(
    config: type[OtlpGrpcConfig | OtlpHttpConfig], text: str
) -> None:
    environ = {"OTEL_EXPORTER_OTLP_HEADERS": text, "OTEL_EXPORTER_OTLP_ENDPOINT": "http://a:1"}
    with pytest.raises(ValidationError) as caught:
        config.model_validate({}, context={"environ": environ})
    messages = " ".join(error["msg"] for error in caught.value.errors())
    assert "OTEL_EXPORTER_OTLP_HEADERS: part " in messages
    assert "write name=value,name=value" in messages
    assert "geheim" not in messages
    assert "ml" not in messages


@pytest.mark.parametrize(
    ("tls", "text"),
    [
        ({"ca_file": "a", "ca_pem": "b"}, "ca_file and ca_pem exclude each other"),
        ({"cert_pem": "a"}, "cert_file and key_file belong together"),
        ({"cert_pem": "a", "cert_file": "b", "key_pem": "c"}, "cert_file and cert_pem exclude each other"),
        ({"min_version": "1.1"}, "TLS 1.1 is not secure and not supported; use 1.2 or 1.3"),
        ({"max_version": 1.0}, "TLS 1.0 is not secure"),
        ({"min_version": "1.3", "max_version": "1.2"}, "max_version 1.2 is older than min_version 1.3"),
    ],
)
@both_configs
def test_contradictions_in_tls_are_mistakes(
    config: type[OtlpGrpcConfig | OtlpHttpConfig], tls: dict[str, Any], text: str
) -> None:
    assert text in mistakes(config, {"endpoint": "http://a:1", "tls": tls})


def test_tls_versions_need_http() -> None:
    for tls in ({"min_version": 1.3}, {"max_version": "1.2"}):
        assert "gRPC for Python always accepts TLS 1.2 and 1.3" in mistakes(
            OtlpGrpcConfig, {"endpoint": "a:1", "tls": tls}
        )
        OtlpHttpConfig.model_validate({"endpoint": "https://a", "tls": tls})


def test_a_key_in_the_configuration_is_a_secret() -> None:
    config = OtlpHttpConfig.model_validate({"endpoint": "https://a", "tls": {"cert_pem": "x", "key_pem": "geheim"}})
    assert "geheim" not in repr(config)


@pytest.mark.parametrize(
    ("endpoint", "host", "listed"),
    [
        ("https://gateway:4317", ("gateway", 4317), []),
        ("dns:///gateway:4317", ("gateway", 4317), []),
        ("[::1]:4317", ("::1", 4317), []),
        ("dns://10.0.0.2/gateway:4317", None, []),
        ("unix:/run/otlp.sock", None, []),
        ("ipv4:10.0.0.1:1,10.0.0.2:1", None, ["ipv4:10.0.0.1:1", "ipv4:10.0.0.2:1"]),
        ("ipv6:[::1]:1,[::2]:1", None, ["ipv6:[::1]:1", "ipv6:[::2]:1"]),
    ],
)
def test_a_grpc_endpoint_names_a_host_or_lists_addresses(
    endpoint: str, host: tuple[str, int] | None, listed: list[str]
) -> None:
    config = OtlpGrpcConfig(endpoint=endpoint)
    assert (config.host_and_port, config.listed_addresses) == (host, listed)
    assert config.balancer_name == "round_robin"
