"""The cost of the phases processor on recorded training loops: CPU time per span.

Garbage collection of imported modules does not count.
"""

import gc
import gzip
import time
from collections.abc import Iterator
from pathlib import Path

from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span, TracesData

from benchmarks import BenchmarkRow
from otel_zernel.batch import Batch
from otel_zernel.otlp.json import parse_spans_json
from otel_zernel.testing import make_context
from otel_zernel_processors.phases import PhasesProcessor

SPANS = 10_000
SCENARIOS = ("AdamW", "gloo_DDP")
RECORDED = Path(__file__).parents[2] / "tests/processors/phases/recorded"
RUNS = 5


def spans_of(name: str, count: int = SPANS) -> bytes:
    """An encoded batch of `count` spans: the recorded loop of a process, repeated."""
    origin, spans = recorded_process(name)
    return encoded_spans(origin, list(repeated_spans(spans, count)))


def one_step(count: int = SPANS) -> bytes:
    """The same between two loads: the spans between two data loads are repeated."""
    origin, recorded = recorded_process("AdamW")
    spans = list(repeated_spans(recorded, 3 * count))
    within = [span for span in spans if "DataLoader" not in span.name][: count - 2]
    loads = [span for span in spans if "DataLoader" in span.name]
    after = next(span for span in loads if span.start_time_unix_nano > within[-1].end_time_unix_nano)
    return encoded_spans(origin, [loads[0], *within, after])


def without_loader(count: int = SPANS) -> bytes:
    """The AdamW loop without the spans of its DataLoader: its steps follow from the backward passes."""
    origin, spans = recorded_process("AdamW")
    return encoded_spans(origin, list(repeated_spans([span for span in spans if "DataLoader" not in span.name], count)))


def recorded_process(name: str) -> tuple[ResourceSpans, list[Span]]:
    """The first process of a recording: its resource and its spans."""
    lines = gzip.decompress((RECORDED / name / "spans.jsonl.gz").read_bytes()).splitlines()
    resources = [resource for line in lines for resource in parse_spans_json(line).resource_spans]
    own = [resource for resource in resources if resource.resource == resources[0].resource]
    return own[0], [span for resource in own for scope in resource.scope_spans for span in scope.spans]


def repeated_spans(spans: list[Span], count: int) -> Iterator[Span]:
    spans.sort(key=lambda span: span.end_time_unix_nano)
    lasts = spans[-1].end_time_unix_nano - min(span.start_time_unix_nano for span in spans)
    for number in range(count):
        span, shift = Span(), number // len(spans) * lasts
        span.CopyFrom(spans[number % len(spans)])
        span.start_time_unix_nano += shift
        span.end_time_unix_nano += shift
        yield span


def encoded_spans(origin: ResourceSpans, spans: list[Span]) -> bytes:
    scope = ScopeSpans(scope=origin.scope_spans[0].scope, spans=spans)
    return TracesData(resource_spans=[ResourceSpans(resource=origin.resource, scope_spans=[scope])]).SerializeToString()


def cpu_s(encoded: bytes) -> float:
    """CPU seconds from the batch to the last report."""
    processor, batch = _processor(), Batch.from_bytes(spans=encoded)
    began = time.thread_time()
    for _ in processor.process(batch):
        pass
    for _ in processor.flush():
        pass
    return time.thread_time() - began


def _processor() -> PhasesProcessor:
    return PhasesProcessor(PhasesProcessor.Config(max_spans=2 * SPANS), make_context("processors", "phases"))


def run() -> list[BenchmarkRow]:
    """Each value is the best of five runs: other programs only add time."""
    gc.freeze()
    rows = []
    batches = {name: spans_of(name) for name in SCENARIOS}
    batches |= {"no DataLoader": without_loader(), "all between two loads": one_step()}
    for name, encoded in batches.items():
        cost = min(cpu_s(encoded) for _ in range(RUNS)) / SPANS * 1e6
        rows.append(BenchmarkRow(f"phases: CPU time, {name}", f"{cost:.1f} us/span"))
    return rows
