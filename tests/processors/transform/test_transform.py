"""Statements change the items that their conditions select."""

from typing import Any

import pytest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, LogsData
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData
from opentelemetry.proto.trace.v1.trace_pb2 import Span, TracesData
from pydantic import ValidationError

from otel_zernel.batch import Batch
from otel_zernel.otlp.points import key_values
from otel_zernel.testing import Dropped, make_context
from otel_zernel_libraries.conditions import from_any_value
from otel_zernel_processors.transform import TransformProcessor
from tests import otlp


def processor(**options: Any) -> TransformProcessor:
    config = TransformProcessor.Config.model_validate(options)
    return TransformProcessor(config, make_context("processors", "transform"))


def run(one: TransformProcessor, batch: Batch) -> Batch | None:
    outputs = list(one.process(batch))
    assert len(outputs) <= 1
    return outputs[0] if outputs else None


def metrics() -> Batch:
    """The sum `m` with an integer and a double point, and the gauge `n`."""
    points = (otlp.number(1, {"k": "v"}, 0), otlp.number(2.5, {"k": "w", "n": 7}, 0))
    total = otlp.total("m", *points, unit="By", monotonic=False)
    resource = {"host.name": "a", "secret": "x"}
    message = otlp.data(total, otlp.gauge("n", otlp.number(3, time=0)), resource=resource, scope="s")
    return Batch.from_bytes(metrics=message.SerializeToString())


def spans() -> Batch:
    step = Span(name="step", kind=Span.SPAN_KIND_CLIENT, attributes=key_values({"user": "ann@x"}))
    step.events.add(name="oom")
    return Batch.from_bytes(spans=otlp.traces(step, Span(name="eval")).SerializeToString())


def logs() -> Batch:
    body = AnyValue(string_value="CUDA out of memory")
    record = LogRecord(attributes=key_values({"f": "train.py"}), body=body)
    return Batch.from_bytes(logs=otlp.logs(record).SerializeToString())


def metrics_after(*statements: Any, **options: Any) -> MetricsData:
    passed = run(processor(metric_statements=list(statements), **options), metrics())
    assert passed is not None
    return MetricsData.FromString(passed.bytes_of("metrics"))


def spans_after(*statements: Any) -> Any:
    passed = run(processor(trace_statements=list(statements)), spans())
    assert passed is not None
    return TracesData.FromString(passed.bytes_of("traces")).resource_spans[0].scope_spans[0].spans


def log_after(*statements: Any) -> Any:
    passed = run(processor(log_statements=list(statements)), logs())
    assert passed is not None
    return LogsData.FromString(passed.bytes_of("logs")).resource_logs[0].scope_logs[0].log_records[0]


def attributes_of(message: Any) -> dict[str, Any]:
    return {pair.key: from_any_value(pair.value) for pair in message.attributes}


def points_of(message: MetricsData) -> list[dict[str, Any]]:
    """The attributes of the points of `m`."""
    return [attributes_of(point) for point in message.resource_metrics[0].scope_metrics[0].metrics[0].sum.data_points]


def test_set_writes_fields_of_each_context() -> None:
    message = metrics_after(
        'set(resource.attributes["new"], 1)',
        'set(scope.version, "2") where scope.name == "s"',
        'set(metric.unit, "1") where metric.name == "m"',
        "set(datapoint.value_double, 9.5) where datapoint.value_int == 1",
        'set(datapoint.attributes["host"], resource.attributes["host.name"])',
    )
    [resource] = message.resource_metrics
    assert attributes_of(resource.resource) == {"host.name": "a", "secret": "x", "new": 1}
    assert resource.scope_metrics[0].scope.version == "2"
    assert [metric.unit for metric in resource.scope_metrics[0].metrics] == ["1", ""]
    assert [point.as_double for point in resource.scope_metrics[0].metrics[0].sum.data_points] == [9.5, 2.5]
    assert points_of(message) == [{"k": "v", "host": "a"}, {"k": "w", "n": 7, "host": "a"}]


def test_spans_and_events_are_changed() -> None:
    step, evaluation = spans_after(
        'set(span.name, Concat(["train", span.name], ".")) where span.kind == SPAN_KIND_CLIENT',
        'set(span.status.code, STATUS_CODE_ERROR) where spanevent.name == "oom"',
        'set(spanevent.attributes["of"], span.name)',
    )
    assert (step.name, step.status.code, evaluation.name, evaluation.status.code) == ("train.step", 2, "eval", 0)
    assert attributes_of(step.events[0]) == {"of": "train.step"}


def test_log_records_are_changed() -> None:
    record = log_after(
        'set(log.severity_number, SEVERITY_NUMBER_ERROR) where IsMatch(log.body, "out of memory")',
        'set(log.severity_text, "ERROR") where log.severity_number >= 17',
        'set(log.attributes["original"], log.body)',
        'set(log.body, "short")',
    )
    assert (record.severity_number, record.severity_text, record.body.string_value) == (17, "ERROR", "short")
    assert attributes_of(record) == {"f": "train.py", "original": "CUDA out of memory"}


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ('delete_key(datapoint.attributes, "k")', [{}, {"n": 7}]),
        ('delete_matching_keys(datapoint.attributes, "^[nx]$")', [{"k": "v"}, {"k": "w"}]),
        ('keep_keys(datapoint.attributes, ["n", "x"])', [{}, {"n": 7}]),
        ('keep_matching_keys(datapoint.attributes, "^k")', [{"k": "v"}, {"k": "w"}]),
        ('set(datapoint.attributes["k"], nil)', [{"k": "v"}, {"k": "w", "n": 7}]),
        ('set(datapoint.attributes["k"], datapoint.attributes["n"])', [{"k": "v"}, {"k": 7, "n": 7}]),
        ('replace_pattern(datapoint.attributes["k"], "^(v)$", "<$1>")', [{"k": "<v>"}, {"k": "w", "n": 7}]),
        ('replace_pattern(datapoint.attributes["n"], "7", "8")', [{"k": "v"}, {"k": "w", "n": 7}]),
        ('replace_all_patterns(datapoint.attributes, "value", "[vw]", "<$0>")', [{"k": "<v>"}, {"k": "<w>", "n": 7}]),
        ('replace_all_patterns(datapoint.attributes, "key", "^n$", "m")', [{"k": "v"}, {"k": "w", "m": 7}]),
        ('limit(datapoint.attributes, 1, ["n"])', [{"k": "v"}, {"n": 7}]),
        ("limit(datapoint.attributes, 1, [])", [{"k": "v"}, {"k": "w"}]),
        ('set(datapoint.attributes["k"], ["a", "b"])', [{"k": ["a", "b"]}, {"k": ["a", "b"], "n": 7}]),
    ],
)
def test_each_function_on_attributes(statement: str, expected: list[dict[str, Any]]) -> None:
    assert points_of(metrics_after(statement)) == expected


def test_texts_are_cut_between_characters() -> None:
    record = log_after('set(log.attributes["g"], "aéé")', "truncate_all(log.attributes, 4)")
    assert attributes_of(record) == {"f": "trai", "g": "aé"}


def test_metrics_change_their_type_and_keep_their_points() -> None:
    message = metrics_after("convert_sum_to_gauge()", 'convert_gauge_to_sum("delta", true) where metric.name == "n"')
    gauge, total = message.resource_metrics[0].scope_metrics[0].metrics
    assert [attributes_of(point) for point in gauge.gauge.data_points] == [{"k": "v"}, {"k": "w", "n": 7}]
    assert (total.sum.is_monotonic, total.sum.aggregation_temporality, total.sum.data_points[0].as_int) == (True, 1, 3)


def test_later_statements_see_the_changes_of_earlier_ones() -> None:
    step, _ = spans_after('set(span.name, "a")', 'set(span.name, "b") where span.name == "a"')
    assert step.name == "b"


def test_a_group_has_a_context_and_conditions() -> None:
    group = {
        "context": "datapoint",
        "conditions": ['attributes["k"] == "v"', 'attributes["k"] == "z"'],
        "statements": ['set(attributes["k"], "new")', 'set(attributes["l"], "new")'],
    }
    assert points_of(metrics_after(group)) == [{"k": "new"}, {"k": "w", "n": 7}]


def test_a_signal_without_statements_is_not_parsed() -> None:
    batch = Batch.encoded("logs", b"\xff damaged", 1)
    passed = run(processor(metric_statements=['set(metric.unit, "x")']), batch)
    assert passed is batch


@pytest.mark.parametrize(
    "statement",
    [
        "set(metric.name, 5)",
        'set(datapoint.value_int, "x")',
        "set(datapoint.time_unix_nano, -1)",
        'set(datapoint.attributes["x"], ToLowerCase(datapoint.attributes["n"]))',
    ],
)
def test_a_statement_that_does_not_fit_leaves_the_item_and_warns_once(
    statement: str, caplog: pytest.LogCaptureFixture
) -> None:
    message = metrics_after(statement)
    assert message == metrics().metrics
    assert len(caplog.records) == 1
    assert statement in caplog.text


def test_error_mode_propagate_drops_and_counts_the_batch() -> None:
    one = processor(metric_statements=["set(metric.name, 5)"], error_mode="propagate")
    assert run(one, metrics()) is None
    assert isinstance(one.context.drop, Dropped)
    assert one.context.drop.counts == {"statement_error": 3}


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({}, "nothing to do"),
        ({"metric_statements": ['set(nam, "x")']}, "write the context before"),
        ({"metric_statements": ['set(metric.nam, "x")']}, 'did you mean "name"'),
        ({"metric_statements": ['set(metric.type, "x")']}, "cannot be changed"),
        ({"metric_statements": ['set(datapoint.attributes, "x")']}, "needs one key"),
        ({"metric_statements": ['set(datapoint.attributes["a"]["b"], "x")']}, "needs one key"),
        ({"metric_statements": ['set("x", "x")']}, "needs a field here"),
        ({"metric_statements": ["flatten(datapoint.attributes)"]}, "is not supported"),
        ({"metric_statements": ['set(metric.name, "x") when true']}, "expected the end"),
        ({"metric_statements": ['delete_key(metric.name, "x")']}, "needs attributes without a key"),
        ({"metric_statements": ["convert_sum_to_gauge() where datapoint.value_int == 1"]}, "is for the context metric"),
        ({"metric_statements": ['convert_gauge_to_sum("up", true)']}, 'must be "cumulative" or "delta"'),
        ({"metric_statements": ['keep_keys(resource.attributes, "x")']}, "needs a list of keys"),
        ({"log_statements": ['truncate_all(log.attributes, "x")']}, "needs a number here"),
        ({"log_statements": ['replace_all_patterns(log.attributes, "x", "x", "x")']}, 'must be "key" or "value"'),
        ({"log_statements": ["limit(log.attributes, 1, 2)"]}, "needs a list of keys"),
        ({"log_statements": ['delete_matching_keys(log.attributes, "(")']}, "not a regular expression of RE2"),
        ({"log_statements": [{"context": "span", "statements": ['set(name, "x")']}]}, "logs have no context span"),
        ({"log_statements": [{"conditions": ["body == 1"], "statements": ["set(x)"]}]}, "has 1 arguments"),
    ],
)
def test_a_wrong_statement_is_refused_with_a_reason(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValidationError, match=sentence):
        processor(**options)
