"""Sets of time as lists of ranges: union, intersection, length."""

from collections.abc import Iterable, Sequence

TimeRange = tuple[int, int]
"""[start, end) in ns."""


def union(ranges: Iterable[TimeRange]) -> list[TimeRange]:
    """The time that any of the ranges covers, as ranges in order and without overlap."""
    joined: list[TimeRange] = []
    for start, end in sorted(ranges):
        if start >= end:
            continue
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined


def intersection(left: Sequence[TimeRange], right: Sequence[TimeRange]) -> list[TimeRange]:
    """The time that both cover. Both are in order and without overlap."""
    both, i, j = [], 0, 0
    while i < len(left) and j < len(right):
        start, end = max(left[i][0], right[j][0]), min(left[i][1], right[j][1])
        if start < end:
            both.append((start, end))
        if left[i][1] < right[j][1]:
            i += 1
        else:
            j += 1
    return both


def length(ranges: Iterable[TimeRange]) -> int:
    """The length of ranges without overlap, in ns."""
    return sum(end - start for start, end in ranges)
