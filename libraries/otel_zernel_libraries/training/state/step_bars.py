"""The steps of one process on a time line, in bounded memory: neighbours are merged when there are too many."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise

from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_zernel_libraries.training import semconv
from otel_zernel_libraries.training.span_attributes import MalformedSpan
from otel_zernel_libraries.training.step_spans import MergedStepsSpan, SegmentSpan, StepSpan, step_of
from otel_zernel_libraries.training.steps import BarSegment, StepBar, bar_of, joined_durations

MOST_BARS = 4096
"""Bars of one process. A screen has fewer pixels."""
_PAUSE = 4
"""Bars are not merged over a pause that is longer than this many merged bars."""
MOST_SEGMENTS = 12
"""Segments of one bar: the longest ones are kept."""


class StepBars:
    """The bars of one process. With more than `most`, each two neighbours become one."""

    def __init__(self, most: int = MOST_BARS) -> None:
        self._most = most
        self.bars: list[StepBar] = []
        """In the order in which they were added."""

    def add(self, bar: StepBar) -> None:
        """Adds a step."""
        self.bars.append(bar)
        if len(self.bars) > self._most:
            self.bars = merged(self.bars, 2)


def merged(bars: Sequence[StepBar], each: int) -> list[StepBar]:
    """The bars, in order of time, where each `each` neighbours are one. A long pause between two bars stays."""
    ordered = sorted(bars, key=lambda bar: bar.start_ns)
    if each == 1 or not ordered:
        return ordered
    # There is room for few pauses of this length, so the number of bars stays bounded.
    longest = _PAUSE * each * (ordered[-1].end_ns - ordered[0].start_ns) // len(ordered)
    groups: list[list[StepBar]] = [[ordered[0]]]
    for before, bar in pairwise(ordered):
        if len(groups[-1]) < each and bar.start_ns - before.end_ns <= longest:
            groups[-1].append(bar)
        else:
            groups.append([bar])
    return [_joined(group) for group in groups]


def longest_segments(segments: Iterable[BarSegment], most: int = MOST_SEGMENTS) -> tuple[BarSegment, ...]:
    """The segments in order of time. Neighbours of one detail are joined; of more than `most`, the longest stay."""
    joined: list[BarSegment] = []
    for segment_ in sorted(segments, key=lambda segment: segment.start_ns):
        last = joined[-1] if joined else None
        if last and last[:2] == segment_[:2]:
            joined[-1] = last._replace(end_ns=max(last.end_ns, segment_.end_ns))
        else:
            joined.append(segment_)
    if len(joined) > most:
        joined = sorted(joined, key=lambda segment: segment.start_ns - segment.end_ns)[:most]
    return tuple(sorted(joined, key=lambda segment: segment.start_ns))


def _joined(bars: Sequence[StepBar]) -> StepBar:
    if len(bars) == 1:
        return bars[0]
    longest = max(bars, key=lambda bar: bar.longest_ns)
    return StepBar(
        start_ns=bars[0].start_ns,
        end_ns=max(bar.end_ns for bar in bars),
        kind=longest.kind,
        number=bars[0].number,
        phase_ns=tuple(map(sum, zip(*(bar.phase_ns for bar in bars), strict=True))),
        steps=sum(bar.steps for bar in bars),
        durations=joined_durations(bar.each_ns for bar in bars),
    )


def bars_of(
    spans: Iterable[Span], on_malformed: Callable[[MalformedSpan], None], *, with_segments: bool
) -> Iterator[tuple[Span, StepBar]]:
    """Each span `step` or `steps` of one process with its bar. A batch has whole traces, a step before its parts.

    `on_malformed` is called for each span that lacks an attribute.
    """
    steps: list[tuple[Span, StepSpan | MergedStepsSpan]] = []
    parts: dict[bytes, list[BarSegment]] = {}
    for span in spans:
        try:
            if step := step_of(span):
                steps.append((span, step))
                parts[span.span_id] = []
            elif with_segments and span.parent_span_id in parts and not _is_repeated(span):
                part = SegmentSpan.from_span(span)
                parts[span.parent_span_id].append(BarSegment(part.phase, part.detail, part.start_ns, part.end_ns))
        except MalformedSpan as error:
            on_malformed(error)
    return ((span, bar_of(step, longest_segments(parts[span.span_id]))) for span, step in steps)


def _is_repeated(span: Span) -> bool:
    """Whether it repeats the span of a collective or a sync."""
    return any(pair.key == semconv.INTERVAL for pair in span.attributes)
