"""The counts of exponential buckets: sums, differences, coarser scales and higher thresholds.

Bucket i counts the values in (base^i, base^(i+1)] with base = 2^(2^-scale). Decreasing the scale by 1 merges each pair
of neighbouring buckets (OpenTelemetry metrics data model, "ExponentialHistogram").
"""

import math

Counts = dict[int, int]
"""The counts of the non-empty buckets on one side of zero, by index."""

MOST_BUCKETS = 160
"""Buckets on each side of zero: the default of the OpenTelemetry SDKs. With more, the scale decreases."""


def added(left: Counts, right: Counts) -> Counts:
    """The sum of two sides at one scale."""
    return {index: left.get(index, 0) + right.get(index, 0) for index in left.keys() | right.keys()}


def subtracted(now: Counts, before: Counts) -> Counts:
    """The differences of two sides at one scale that are not zero."""
    changed = ((index, now.get(index, 0) - before.get(index, 0)) for index in now.keys() | before.keys())
    return {index: count for index, count in changed if count}


def merged(side: Counts, shift: int) -> Counts:
    """The side at a scale that is lower by `shift`."""
    if not shift:
        return side
    counts: Counts = {}
    for index, count in side.items():
        counts[index >> shift] = counts.get(index >> shift, 0) + count
    return counts


def limited(scale: int, positive: Counts, negative: Counts, most: int = MOST_BUCKETS) -> tuple[int, Counts, Counts]:
    """The finest scale at which neither side spans more than `most` buckets, and the sides at it."""
    shift = 0
    while any(side and (max(side) >> shift) - (min(side) >> shift) >= most for side in (positive, negative)):
        shift += 1
    return scale - shift, merged(positive, shift), merged(negative, shift)


def above(side: Counts, scale: int, threshold: float) -> tuple[int, Counts]:
    """The count of the buckets whose middle is within a threshold, and the other buckets."""
    within = {index for index in side if _middle(index, scale) <= threshold}
    return sum(side[index] for index in within), {index: side[index] for index in side if index not in within}


def _middle(index: int, scale: int) -> float:
    """The geometric middle of a bucket."""
    try:
        return float(2.0 ** math.ldexp(index + 0.5, -scale))
    except OverflowError:
        return math.inf if index > 0 else 0.0
