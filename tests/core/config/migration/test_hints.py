"""A user of the OpenTelemetry Collector reads what to write here in place of its names."""

from pathlib import Path

import pytest

from otel_zernel.config.migration import hint, texts
from otel_zernel.config.schema import SECTIONS
from otel_zernel.registry import KINDS, Registry
from tests.core.cli.running import command

# The shape of examples/demo/otel-collector-config.yaml and examples/local/otel-config.yaml of opentelemetry-collector.
DEMO = """
receivers:
  hostmetrics: {scrapers: {cpu: {}}}
  otlp: {protocols: {grpc: {}, http: {cors: {allowed_origins: ["*"]}}}}
processors:
  batch: {}
  k8sattributes: {auth_type: serviceAccount}
exporters:
  logging: {loglevel: debug}
  prometheus: {endpoint: "0.0.0.0:8889", metric_name_prefix: train}
  prometheusremotewrite: {endpoint: "http://prometheus:9090/api/v1/write", wal: {directory: /wal}}
  otlp: {endpoint: "backend:4317", insecure: true}
extensions:
  health_check: {}
  pprof: {endpoint: "0.0.0.0:1777"}
  zpages: {}
connectors: {spanmetrics: {}}
service:
  extensions: [health_check, pprof, zpages]
  telemetry: {metrics: {address: ":8888"}, logs: {level: debug}}
  pipelines:
    traces: {receivers: [otlp], processors: [batch], exporters: [otlp]}
    metrics: {receivers: [otlp, hostmetrics], processors: [batch], exporters: [prometheus]}
"""

TEXTS = {**texts("otelcol.yaml"), **texts("without_effect.yaml")}


def test_every_unknown_name_of_a_typical_configuration_has_a_hint(tmp_path: Path) -> None:
    path = tmp_path / "otelcol.yaml"
    path.write_text(DEMO)
    done = command("validate", "--config", str(path))
    assert done.returncode == 1
    mistakes = dict(line.strip().split(": ", 1) for line in done.stderr.splitlines()[1:])
    assert "receivers::hostmetrics" not in mistakes
    assert "write kubernetes, with `api: {}`" in mistakes["processors::k8sattributes"]
    assert "write debug" in mistakes["exporters::logging"]
    assert mistakes["exporters::prometheus::metric_name_prefix"].partition(" (")[0].endswith("write namespace")
    assert "sending_queue::storage" in mistakes["exporters::prometheusremotewrite::wal"]
    assert "tls: {insecure: true}" in mistakes["exporters::otlp::insecure"]
    assert "py-spy" in mistakes["extensions::pprof"]
    assert "readers:" in mistakes["service::telemetry::metrics::address"]
    assert "several pipelines" in mistakes["connectors"]
    assert not [line for line in mistakes.values() if "valid types" in line or "valid keys" in line]


def test_a_hint_applies_to_an_id_with_a_name_and_to_any_index() -> None:
    assert hint(("exporters", "logging/detailed")) == hint(("exporters", "logging"))
    assert hint(("processors", "metricstransform/x", "transforms", 3, "metric_name")) == "write include"
    assert hint(("exporters", "otlp", "no_such_key")) is None


def test_both_names_of_a_processor_have_the_same_hint() -> None:
    assert hint(("processors", "k8s_attributes")) == hint(("processors", "k8sattributes/pods"))


def test_no_text_is_for_something_that_exists_here() -> None:
    registry = Registry.installed()
    for pattern in TEXTS:
        kind, *rest = pattern.split("::")
        assert rest or kind not in SECTIONS
        if kind in KINDS and len(rest) == 1:
            assert rest[0] not in registry.types(kind), pattern
        elif kind in KINDS and "*" not in pattern:
            assert rest[0] in registry.types(kind), pattern
            fields = registry.load(kind, rest[0]).Config.model_fields
            assert len(rest) > 2 or rest[1] not in fields, pattern


@pytest.mark.parametrize(("pattern", "text"), TEXTS.items(), ids=lambda value: value[:60])
def test_a_text_is_the_end_of_a_sentence(pattern: str, text: str) -> None:
    assert pattern
    assert text[0].islower() or text.startswith(("Go's", "Kubernetes", "StatsD", "Graphite"))
    assert not text.endswith(".")
    assert "\n" not in text
