"""The actions and detectors of the resource processor."""

import platform
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData
from opentelemetry.proto.trace.v1.trace_pb2 import Span, TracesData
from pydantic import ValidationError

from otel_zernel.batch import Batch
from otel_zernel.otlp.points import AttributeValue
from otel_zernel.testing import make_context
from otel_zernel_libraries.conditions import from_any_value
from otel_zernel_processors.resource import ResourceDetectionProcessor, ResourceProcessor
from otel_zernel_processors.resource.processor import DetectionSources
from tests.otlp import data, gauge, meaning_of_profiles, number, profiles, traces

LINUX = platform.uname_result("Linux", "node-1", "6.1", "#1", "x86_64")


def sources(tmp_path: Path | None = None, **environ: str) -> DetectionSources:
    """A machine named node-1. It has a machine-id if `tmp_path` is given."""
    machine_id = (tmp_path or Path("/nonexistent")) / "machine-id"
    if tmp_path:
        machine_id.write_text("0123abcd\n")
    return DetectionSources(environ, lambda: LINUX, machine_id, lambda: 42, "/usr/bin/python3")


def processor(options: Mapping[str, Any], detected_from: DetectionSources | None = None) -> ResourceProcessor:
    config = ResourceProcessor.Config.model_validate(options)
    return ResourceProcessor(config, make_context("processors", "resource"), detected_from or sources())


def of_resources(*resources: Mapping[str, AttributeValue]) -> Batch:
    """A batch of metrics, one for each resource."""
    metrics = MetricsData()
    for attributes in resources:
        metrics.MergeFrom(data(gauge("up", number(1.0)), resource=attributes))
    return Batch.from_bytes(metrics=metrics.SerializeToString())


def attributes_of(batch: Batch) -> list[dict[str, object]]:
    """The attributes of each resource, decoded from the batch's bytes."""
    metrics = MetricsData.FromString(batch.bytes_of("metrics"))
    return [
        {pair.key: from_any_value(pair.value) for pair in holder.resource.attributes}
        for holder in metrics.resource_metrics
    ]


def after(
    options: Mapping[str, Any], attributes: Mapping[str, AttributeValue], detected_from: DetectionSources | None = None
) -> dict[str, object]:
    """The attributes of a resource after the processor."""
    [batch] = processor(options, detected_from).process(of_resources(attributes))
    [found] = attributes_of(batch)
    return found


@given(st.one_of(st.booleans(), st.integers(-(2**63), 2**63 - 1), st.text(), st.lists(st.text(), max_size=3)))
def test_values_keep_their_type(value: object) -> None:
    found = after({"attributes": [{"key": "k", "value": value}]}, {})["k"]
    assert found == value
    assert type(found) is type(value)


def test_only_changed_resources_are_edited() -> None:
    [batch] = processor({"attributes": [{"key": "k", "value": 1}]}).process(of_resources({"k": 1}, {}, {"k": 2}))
    assert attributes_of(batch) == [{"k": 1}] * 3
    assert batch.point_count == 3


def test_spans_get_the_same_attributes() -> None:
    spans = Batch(spans=traces(Span(name="step")))
    [batch] = processor({"detectors": ["env"]}, sources(OTEL_SERVICE_NAME="trainer")).process(spans)
    [resource] = TracesData.FromString(batch.bytes_of("traces")).resource_spans
    assert resource.resource.attributes[0].value.string_value == "trainer"
    assert "metrics" not in batch.signals


def test_profiles_get_the_same_attributes_also_if_the_dictionary_has_their_texts() -> None:
    message = profiles(7, resource={"service.name": "train"})
    numbered = profiles(7)
    numbered.dictionary.string_table.extend(["service.name", "train", "list"])
    number_of = {text: at for at, text in enumerate(numbered.dictionary.string_table)}
    pairs = numbered.resource_profiles[0].resource.attributes
    pairs.add(key_strindex=number_of["service.name"]).value.string_value_strindex = number_of["train"]
    inner = pairs.add(key_strindex=number_of["list"]).value.array_value.values
    inner.add(string_value_strindex=number_of["train"])
    inner.add(string_value_strindex=99)  # there is none
    add = {"attributes": [{"key": "service.name", "value": "x", "action": "insert"}, {"key": "a", "value": 1}]}
    for sent, more in ((message, {}), (numbered, {"list": ["train", ""]})):
        (changed,) = processor(add).process(Batch.from_bytes(profiles=sent.SerializeToString()))
        (resource,) = changed.profiles.resource_profiles
        plain = {pair.key: from_any_value(pair.value) for pair in resource.resource.attributes}
        assert plain == {"service.name": "train", "a": 1, **more}
        assert [samples for *_, samples in meaning_of_profiles(changed.profiles)] == [
            samples for *_, samples in meaning_of_profiles(profiles(7))
        ]


def test_a_long_text_that_many_attributes_name_is_not_copied_for_each() -> None:
    message = profiles(7)
    message.dictionary.string_table.append("x" * 100_000)
    pairs = message.resource_profiles[0].resource.attributes
    for at in range(100):
        pairs.add(key=str(at)).value.string_value_strindex = len(message.dictionary.string_table) - 1
    (changed,) = processor({"attributes": [{"key": "a", "value": 1}]}).process(
        Batch.from_bytes(profiles=message.SerializeToString())
    )
    assert len(changed.bytes_of("profiles")) < 110_000
    assert changed.profiles.resource_profiles[0].resource.attributes[-1].key == "a"


def test_unchanged_profiles_pass_as_the_bytes_that_arrived() -> None:
    sent = profiles(7, resource={"list": ["a"]}).SerializeToString()
    keep = {"attributes": [{"key": "list", "value": "x", "action": "insert"}]}
    (passed,) = processor(keep).process(Batch.from_bytes(profiles=sent + b"\xf8\x07\x01"))
    assert passed.bytes_of("profiles") == sent + b"\xf8\x07\x01"


def test_env_reads_percent_encoded_attributes_and_the_service_name() -> None:
    detected_from = sources(
        OTEL_RESOURCE_ATTRIBUTES="k8s.pod.name=pod-1, a%20b=c%2Cd%3D ,,service.name=x", OTEL_SERVICE_NAME="trainer"
    )
    assert after({"detectors": ["env"]}, {}, detected_from) == {
        "k8s.pod.name": "pod-1",
        "a b": "c,d=",
        "service.name": "trainer",
    }


def test_a_malformed_part_of_the_environment_is_ignored_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    detected_from = sources(OTEL_RESOURCE_ATTRIBUTES="good=1,bad,=worse")
    assert after({"detectors": ["env"]}, {}, detected_from) == {"good": "1"}
    assert [record.args for record in caplog.records] == [("bad",), ("=worse",)]


def test_host_detects_the_machine_and_its_id_if_it_has_one(tmp_path: Path) -> None:
    expected = {"host.name": "node-1", "host.arch": "amd64", "os.type": "linux"}
    assert after({"detectors": ["host"]}, {}) == expected
    assert after({"detectors": ["host"]}, {}, sources(tmp_path)) == {**expected, "host.id": "0123abcd"}


def test_system_adds_the_attributes_that_the_collector_adds_and_those_that_are_enabled(tmp_path: Path) -> None:
    release = tmp_path / "os-release"
    release.write_text('NAME="Debian GNU/Linux"\nVERSION_ID="12"\nPRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\n')
    detected_from = replace(sources(tmp_path), os_release=release)
    assert after({"detectors": ["system"]}, {}, detected_from) == {"host.name": "node-1", "os.type": "linux"}
    names = ["host.id", "host.arch", "os.name", "os.version", "os.description"]
    switches = {"os.type": {"enabled": False}, **{name: {"enabled": True} for name in names}}
    options = {"detectors": ["system"], "system": {"resource_attributes": switches}}
    assert after(options, {}, detected_from) == {
        "host.name": "node-1",
        "host.id": "0123abcd",
        "host.arch": "amd64",
        "os.name": "Debian GNU/Linux",
        "os.version": "12",
        "os.description": "Debian GNU/Linux 12 (bookworm) (Linux node-1 6.1 #1 x86_64)",
    }


def test_resource_detection_only_detects() -> None:
    config = ResourceDetectionProcessor.Config.model_validate({"detectors": ["env", "system"], "timeout": "2s"})
    one = ResourceDetectionProcessor(
        config, make_context("processors", "resource_detection"), sources(None, OTEL_SERVICE_NAME="x")
    )
    [batch] = one.process(of_resources({"host.name": "own"}))
    assert attributes_of(batch) == [{"service.name": "x", "host.name": "node-1", "os.type": "linux"}]
    wrong: dict[str, Any]
    for wrong in ({"refresh_interval": "1m"}, {"attributes": []}):
        with pytest.raises(ValidationError):
            ResourceDetectionProcessor.Config.model_validate(wrong)


def test_resources_have_the_actions_of_other_attributes() -> None:
    actions = [
        {"key": "k8s.pod.name", "pattern": r"^(?P<job>.*)-(?P<rank>\d+)$", "action": "extract"},
        {"key": "rank", "converted_type": "int", "action": "convert"},
        {"pattern": "^secret", "action": "delete"},
    ]
    found = after({"attributes": actions}, {"k8s.pod.name": "llm-12", "secret.a": "x", "secret.b": "y"})
    assert found == {"k8s.pod.name": "llm-12", "job": "llm", "rank": 12}


def test_process_detects_the_collector() -> None:
    found = after({"detectors": ["process"]}, {})
    assert found["process.pid"] == 42
    assert found["process.executable.name"] == "python3"
    assert found["process.runtime.version"] == platform.python_version()


def test_detected_attributes_override_unless_disabled_and_the_first_detector_wins() -> None:
    detected_from = sources(OTEL_RESOURCE_ATTRIBUTES="host.name=from-env")
    options = {"detectors": ["env", "host"]}
    assert after(options, {"host.name": "own"}, detected_from)["host.name"] == "from-env"
    assert after({**options, "detectors": ["host", "env"]}, {}, detected_from)["host.name"] == "node-1"
    assert after({**options, "override": False}, {"host.name": "own"}, detected_from)["host.name"] == "own"


def test_detection_runs_once_at_the_first_batch() -> None:
    looks = []

    def uname() -> platform.uname_result:
        looks.append(1)
        return LINUX

    one = processor({"detectors": ["host"]}, DetectionSources({}, uname, Path("/nonexistent")))
    assert looks == []
    for name in "ab":
        list(one.process(of_resources({"name": name})))
    assert looks == [1]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({}, "nothing to do"),
        ({"attributes": [{"key": "k"}]}, "the action upsert needs value, from_attribute or default_value"),
        ({"attributes": [{"key": "k", "value": 1, "from_attribute": "x"}]}, "needs either value or from_attribute"),
        ({"attributes": [{"key": "k", "value": 1, "action": "delete"}]}, "the action delete has no value"),
        ({"detectors": ["gcp"]}, 'detector "gcp" is not supported; supported: env, system, host, process'),
        ({"detectors": ["system"], "system": {"hostname_sources": ["dns"]}}, r"only \[os\] is supported"),
        ({"attributes": [{"key": "k", "from_context": "x"}]}, "batches carry no metadata of clients"),
    ],
)
def test_a_wrong_configuration_is_refused_with_a_reason(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValidationError, match=sentence):
        ResourceProcessor.Config.model_validate(options)
