"""Exponential histograms as Prometheus' native histograms.

A native bucket of index i counts the values in (base^(i-1), base^i], so its index is that of OpenTelemetry plus 1
(OpenTelemetry specification, compatibility/prometheus_and_openmetrics.md, "Exponential Histograms").
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from otel_zernel_libraries.histograms.exponential import Counts
from otel_zernel_libraries.prometheus.histograms.exponential import ExponentialBuckets, edge

_FINEST_SCHEMA, _COARSEST_SCHEMA = 8, -4
"""The limits of Prometheus."""
_LEAST_ZERO_THRESHOLD = 1e-128
"""The zero threshold of histograms without one, as in Prometheus' own OTLP receiver.

A histogram without values and without a threshold would look like one that has no native buckets.
"""
_MAX_GAP = 2
"""The most empty buckets written between two others. A new span takes more bytes than two counts of zero."""


class Side(NamedTuple):
    """The buckets on one side of zero."""

    spans: list[tuple[int, int]]
    """The gap to the previous span (for the first one its index), and the number of buckets."""
    deltas: list[int]
    """The count of each bucket minus that of the bucket before."""


class NativeBuckets(NamedTuple):
    """The buckets of a native histogram."""

    schema: int
    zero_threshold: float
    zero_count: int
    positive: Side
    negative: Side


def native_buckets(buckets: ExponentialBuckets) -> NativeBuckets | None:
    """The buckets at schema 8 at the finest. None if the scale is below -4: Prometheus has no such schema."""
    if buckets.scale < _COARSEST_SCHEMA:
        return None
    threshold = max(buckets.zero_threshold, _LEAST_ZERO_THRESHOLD)
    shown = _without_overlap(replace(buckets.at_scale(min(buckets.scale, _FINEST_SCHEMA)), zero_threshold=threshold))
    positive, negative = _side(shown.positive), _side(shown.negative)
    return NativeBuckets(shown.scale, shown.zero_threshold, shown.zero_count, positive, negative)


def custom_side(counts: Sequence[int]) -> Side:
    """The buckets of a native histogram with custom bounds (schema -53). The first bucket has the index 0."""
    return _side({index - 1: count for index, count in enumerate(counts) if count})


def _without_overlap(buckets: ExponentialBuckets) -> ExponentialBuckets:
    """The buckets that begin within the zero bucket are added to it, and it becomes as wide as they are."""
    while inside := [
        (side, index)
        for side in (buckets.positive, buckets.negative)
        for index in side
        if edge(index, buckets.scale) < buckets.zero_threshold
    ]:
        buckets = replace(
            buckets,
            zero_threshold=max(buckets.zero_threshold, *(edge(index + 1, buckets.scale) for _, index in inside)),
            zero_count=buckets.zero_count + sum(side[index] for side, index in inside),
            positive=_from(buckets.zero_threshold, buckets.positive, buckets.scale),
            negative=_from(buckets.zero_threshold, buckets.negative, buckets.scale),
        )
    return buckets


def _from(lowest: float, side: Counts, scale: int) -> Counts:
    return {index: count for index, count in side.items() if edge(index, scale) >= lowest}


def _side(counts: Counts) -> Side:
    spans: list[tuple[int, int]] = []
    dense: list[int] = []
    end = 0
    for first, run in _runs(counts):
        spans.append((first + 1 - end, len(run)))
        dense += run
        end = first + 1 + len(run)
    return Side(spans, [count - before for count, before in zip(dense, [0, *dense], strict=False)])


def _runs(counts: Counts) -> Iterator[tuple[int, list[int]]]:
    """The first index and the counts of each run of buckets that has no long gap."""
    first, run = 0, list[int]()
    for index in sorted(counts):
        gap = index - first - len(run)
        if run and gap > _MAX_GAP:
            yield first, run
            run = []
        if not run:
            first, gap = index, 0
        run += [0] * gap
        run.append(counts[index])
    if run:
        yield first, run
