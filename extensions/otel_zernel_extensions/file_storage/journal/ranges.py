"""Sets of sequences as sorted ranges `(first, last)`, both included. A journal's finished records are few ranges."""

from collections.abc import Iterable, Iterator

Range = tuple[int, int]


def merged(ranges: Iterable[Range]) -> list[Range]:
    """The same sequences in as few ranges as possible, sorted."""
    result: list[Range] = []
    for first, last in sorted(ranges):
        if result and first <= result[-1][1] + 1:
            result[-1] = (result[-1][0], max(last, result[-1][1]))
        else:
            result.append((first, last))
    return result


def of(sequences: Iterable[int]) -> list[Range]:
    """The ranges of single sequences."""
    return merged((sequence, sequence) for sequence in sequences)


def without(whole: Range, ranges: Iterable[Range]) -> Iterator[Range]:
    """The parts of `whole` that no range covers, sorted."""
    first, last = whole
    for start, end in merged(ranges):
        if start > last:
            break
        if start > first:
            yield first, start - 1
        first = max(first, end + 1)
    if first <= last:
        yield first, last


def count(ranges: Iterable[Range]) -> int:
    """The number of sequences in ranges that do not overlap."""
    return sum(last - first + 1 for first, last in ranges)
