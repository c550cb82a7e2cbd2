"""The cost of the phases processor on recorded training loops: CPU time per span and of a report with its answer, and
memory of a span that waits.

Garbage collection of imported modules does not count. `BASELINE=FOLDER python -m benchmarks phases_cost` compares with
the sources in another folder, for example a `git worktree`: both run in turns, so that drift affects both equally.
"""

import gc
import gzip
import os
import statistics
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Iterable, Iterator
from pathlib import Path

from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span, TracesData

from benchmarks import BenchmarkRow
from otel_zernel.batch import Batch
from otel_zernel.testing import make_context
from otel_zernel_processors.phases import PhasesProcessor

ROOT = Path(__file__).parents[2]
RECORDED = ROOT / "tests/processors/phases/recorded"
SPANS = 10_000
SCENARIOS = ("AdamW", "gloo_DDP")
RUNS, PAIRS = 5, 3
FEW_REPORTS = {"interval": "1h", "window": "1h"}
"""One report at the end: the cost of spans does not depend on how long a step takes."""
RANKS = 32
MOST_HELD = 600
"""Bytes of a span that waits."""
ON_CPU = 0.7
"""The part of the time for which the thread of the counters is on a CPU. Else it waits for a lock."""


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


def with_counters(count: int = SPANS) -> bytes:
    """The AdamW loop with the counters of its thread at the begin and the end of each span."""
    from otel_zernel_libraries.training import semconv  # not where this file runs with older sources
    from otel_zernel_libraries.training.ledger import Activity
    from tests.libraries.training.ledger.made_snapshots import NOTHING, after

    origin, recorded = recorded_process("AdamW")
    spans = list(repeated_spans(recorded, count))
    begin = min(span.start_time_unix_nano for span in spans)
    for span in spans:
        edges = {semconv.SNAPSHOT_BEGIN: span.start_time_unix_nano, semconv.SNAPSHOT_END: span.end_time_unix_nano}
        for name, at in edges.items():
            on_cpu = round((at - begin) * ON_CPU)
            waits = {Activity.LOCK: at - begin - on_cpu}
            snapshot = after(NOTHING, on_cpu, waits=waits, minor_faults=(at - begin) // 1_000_000)
            span.attributes.add(key=name).value.bytes_value = snapshot.to_bytes()
    return encoded_spans(origin, spans)


def of_ranks(ranks: int = RANKS, count: int = SPANS) -> bytes:
    """The AdamW loop on each rank of a job."""
    origin, recorded = recorded_process("AdamW")
    spans = list(repeated_spans(recorded, count // ranks))
    data = TracesData()
    for rank in range(ranks):
        resource = Resource.FromString(origin.resource.SerializeToString())
        for name, value in (("process.pid", 1 + rank), ("zernel.rank", rank), ("zernel.world_size", ranks)):
            attribute = (
                next((attribute for attribute in resource.attributes if attribute.key == name), None)
                or resource.attributes.add()
            )
            attribute.key, attribute.value.int_value = name, value
        scope = ScopeSpans(scope=origin.scope_spans[0].scope, spans=spans)
        data.resource_spans.add(resource=resource, scope_spans=[scope])
    return data.SerializeToString()


def recorded_process(name: str) -> tuple[ResourceSpans, list[Span]]:
    """The first process of a recording: its resource and its spans."""
    from otel_zernel.otlp.json import parse_json  # not where this file runs with older sources

    lines = gzip.decompress((RECORDED / name / "spans.jsonl.gz").read_bytes()).splitlines()
    resources = [resource for line in lines for resource in parse_json(TracesData, line).resource_spans]
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


def span_cost_us(encoded: bytes) -> float:
    """CPU time per span from the batch to the last report, us. Other programs only add time: the best run counts."""
    return min(_cpu_s(encoded, **FEW_REPORTS) for _ in range(RUNS)) / SPANS * 1e6


def report_cost() -> BenchmarkRow:
    """CPU time of a report, which the default configuration makes every 10 s with a new answer."""
    encoded = spans_of("AdamW")
    ends = [span.end_time_unix_nano for span in TracesData.FromString(encoded).resource_spans[0].scope_spans[0].spans]
    reports = (max(ends) - min(ends)) / 1e9 / PhasesProcessor.Config().interval
    few, many = (min(_cpu_s(encoded, **settings) for _ in range(RUNS)) for settings in (FEW_REPORTS, {}))
    return BenchmarkRow(
        "phases: CPU time of a report with an answer", f"{(many - few) / reports * 1e3:.1f} ms, every 10 s"
    )


def _cpu_s(encoded: bytes, **config: object) -> float:
    processor, batch = _processor(**config), Batch.from_bytes(spans=encoded)
    began = time.thread_time()
    for _ in processor.process(batch):
        pass
    for _ in processor.flush():
        pass
    return time.thread_time() - began


def waiting_span_bytes(encoded: bytes) -> float:
    """The memory of a span that waits for late ones before it."""
    batch = Batch.from_bytes(spans=encoded)
    count = sum(len(scope.spans) for resource in batch.spans.resource_spans for scope in resource.scope_spans)
    processor = _processor(lateness="1000s")
    gc.collect()
    tracemalloc.start()
    for _ in processor.process(batch):
        pass
    del batch
    gc.collect()
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return held / count


def _processor(**config: object) -> PhasesProcessor:
    settings = PhasesProcessor.Config.model_validate({"max_spans": 4 * SPANS, **config})
    return PhasesProcessor(settings, make_context("processors", "phases"))


def ratio_to(baseline: Path, encoded: bytes) -> float:
    """The median ratio of the cost of a span here to that of the sources in a folder."""
    pairs = [(_cost_in(ROOT, encoded), _cost_in(baseline, encoded)) for _ in range(PAIRS)]
    return statistics.median(here / there for here, there in pairs)


def _cost_in(sources: Path, encoded: bytes) -> float:
    roots = [".", "commands", "exporters", "extensions", "libraries", "processors", "receivers"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(str(sources / root) for root in roots)}
    command = [sys.executable, __file__]
    done = subprocess.run(command, input=encoded, capture_output=True, cwd=sources, env=environment, check=True)
    return float(done.stdout)


def rows_of(batches: Iterable[tuple[str, bytes]]) -> Iterator[BenchmarkRow]:
    baseline = os.environ.get("BASELINE")
    for name, encoded in batches:
        value = f"{span_cost_us(encoded):.1f} us/span"
        if baseline:
            value += f", {ratio_to(Path(baseline).resolve(), encoded):.2f} of the baseline"
        yield BenchmarkRow(f"phases: CPU time, {name}", value)


def run() -> list[BenchmarkRow]:
    """The cost of each loop, and the memory of a waiting span."""
    gc.freeze()
    batches = {name: spans_of(name) for name in SCENARIOS}
    batches |= {"no DataLoader": without_loader(), "all between two loads": one_step()}
    batches |= {"counters of the thread": with_counters(), f"{RANKS} ranks": of_ranks()}
    held = {name: waiting_span_bytes(batches[name]) for name in ("AdamW", "counters of the thread")}
    memory = (
        BenchmarkRow(f"phases: memory, {name}", f"{size:.0f} bytes/span", f"<= {MOST_HELD} bytes", size <= MOST_HELD)
        for name, size in held.items()
    )
    return [*rows_of(batches.items()), report_cost(), *memory]


if __name__ == "__main__":
    gc.freeze()
    print(span_cost_us(sys.stdin.buffer.read()))
