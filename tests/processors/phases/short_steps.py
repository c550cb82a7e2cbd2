"""A loop of short steps, as a receiver sends it that leaves out whole ones."""

from collections.abc import Sequence

from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_zernel.otlp.points import key_values
from tests.processors.phases.training import Loop

BLOCK = 64


def fast_loop(count: int, *, loads: bool = True) -> Loop:
    """Steps of 0.5 ms, some of them a little longer; every 500th writes for 20 ms."""
    loop = Loop()
    for number in range(count):
        if loads:
            loop.do("data_loading", 0.1)
        else:
            loop.do("operators", 0.1)
        loop.wait(0.1 + 0.01 * (number % 7)).do("backward", 0.15).do("optimizer", 0.1)
        loop.wait(20 if number % 500 == 250 else 0.05)
    return loop


def without_some(spans: Sequence[Span], kind: str, every: int) -> list[Span]:
    """Of each `every` blocks of steps, one is left; and the steps that last."""
    ends = [span for span in spans if dict(_texts(span))["zernel.interval"] == kind]
    kept = list(spans)
    for block in range(0, len(ends) - BLOCK - 1, BLOCK):
        first = block
        while block // BLOCK % every and first < block + BLOCK:
            until = first
            while until < block + BLOCK and _lasts(ends, until) < 5_000_000:
                until += 1
            if until - first > 1:
                since, end = ends[first].end_time_unix_nano, ends[until].end_time_unix_nano
                kept = [one for one in kept if not _is_inside(one, since, end) or one is ends[until]]
                kept.append(_skipped(since, end, until - first))
            first = until + 1
    return kept


def _texts(span: Span) -> list[tuple[str, str]]:
    return [(pair.key, pair.value.string_value) for pair in span.attributes]


def _lasts(ends: Sequence[Span], at: int) -> int:
    return ends[at + 1].end_time_unix_nano - ends[at].end_time_unix_nano


def _is_inside(span: Span, since: int, until: int) -> bool:
    return since <= span.start_time_unix_nano and span.end_time_unix_nano <= until


def _skipped(start: int, end: int, steps: int) -> Span:
    attributes = key_values({"zernel.interval": "skipped", "thread.id": 1, "zernel.steps.count": steps})
    return Span(name="skipped", start_time_unix_nano=start, end_time_unix_nano=end, attributes=attributes)
