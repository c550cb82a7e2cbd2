"""examples/training.yaml with the recorded run in place of the receiver."""

from itertools import chain
from pathlib import Path
from typing import Any

from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

from otel_zernel.batch import Batch
from otel_zernel.config.schema import read_settings
from otel_zernel.otlp.json import parse_json
from otel_zernel.registry import Registry
from otel_zernel.testing import make_context
from otel_zernel_libraries.prometheus import Format, Options, Page

EXAMPLES = Path(__file__).parents[2] / "examples"


def processed() -> list[Batch]:
    """The output of the pipeline's processors, after a flush."""
    settings = read_settings([str(EXAMPLES / "training.yaml")], [], {}, Registry.installed())
    [pipeline] = settings.pipelines.values()
    lines = (EXAMPLES / "training_spans.jsonl").read_bytes().splitlines()
    batches = [Batch(spans=parse_json(TracesData, line)) for line in lines]
    for id_ in pipeline.processors:
        one = settings.processors[id_]
        processor: Any = one.cls(one.config, make_context("processors", id_))
        batches = [*chain.from_iterable(map(processor.process, batches)), *processor.flush()]
    return batches


def test_the_page_has_phases_a_verdict_and_exemplars_of_slow_steps() -> None:
    batches = processed()
    page = Page(Options(label_names={"process.pid": "pid", "zernel.phase": "phase"}, without_scope_info=True))
    for batch in batches:
        page.update(batch.metrics, 0)
    lines = page.render(Format(openmetrics=True), 0).decode().splitlines()
    for part in (
        'phase="data_loading"',
        'zernel_verdict="input_bound"} 1',
        "zernel_step_duration_seconds_bucket{",
    ):
        assert any(part in line for line in lines), part
    resources = (resource for batch in batches for resource in batch.spans.resource_spans)
    traces = {span.trace_id.hex() for resource in resources for scope in resource.scope_spans for span in scope.spans}
    linked = {trace for trace in traces if any(f'trace_id="{trace}"' in line for line in lines)}
    assert linked
    assert all("zernel_step_duration" in line for line in lines if "trace_id=" in line)


def test_every_span_of_the_recording_has_ids_and_those_of_one_window_share_a_trace() -> None:
    lines = (EXAMPLES / "training_spans.jsonl").read_bytes().splitlines()
    found = [
        (pid_of(resource.resource), span)
        for line in lines
        for resource in parse_json(TracesData, line).resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]
    assert {(len(span.trace_id), len(span.span_id)) for _, span in found} == {(16, 8)}
    assert len({span.span_id for _, span in found}) == len(found)
    processes: dict[bytes, set[int]] = {}
    for pid, span in found:
        processes.setdefault(span.trace_id, set()).add(pid)
    assert {len(pids) for pids in processes.values()} == {1}
    assert len(processes) < len(found) / 10


def pid_of(resource: Resource) -> int:
    return next(attribute.value.int_value for attribute in resource.attributes if attribute.key == "process.pid")
