"""The steps that a timeline closes."""

from collections.abc import Iterable

from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_zernel_processors.phases.scopes.timeline import ClosedStep, Timeline
from tests.processors.phases.training import MS, interval_of


def closed(spans: Iterable[Span]) -> list[ClosedStep]:
    timeline = Timeline(MS // 2, 10_000)
    for span in sorted(spans, key=lambda span: span.end_time_unix_nano):
        interval = interval_of(span)
        assert interval is not None
        assert timeline.add(interval) is None
    return list(timeline.end())
