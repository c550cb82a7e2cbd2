"""Finds the samples for which a server rejects a whole request: halves, then quarters, down to single samples."""

from collections import Counter, deque
from collections.abc import Sequence

from otel_zernel_exporters.prometheusremotewrite.protocol import Entry

MOST_REJECTIONS = 256
"""Rejected parts of one request after which the rest is given up. It bounds the extra work for the server."""
HOPELESS = 16
"""Rejected samples in a row after which the others of the same age are given up: the server has them all already."""

Group = Sequence[Entry]


class Isolation:
    """The parts of a rejected request to send next, each after the answer to the one before.

    The samples of a series stay in the order of time. Older samples form a group that is given up by itself.
    """

    def __init__(self, entries: Group) -> None:
        """`entries` are those of a request that was rejected."""
        self._groups: deque[tuple[int, Group]] = deque()
        """The parts, each with the number of its age: later ones have lower numbers."""
        self._age = 0
        """The number of the group that was sent last."""
        self._ages = 0
        self._rejections = 1
        self._lost: Counter[int] = Counter()
        """Rejected samples in a row, by age."""
        self._given_up: list[Entry] = []
        if _is_one_sample(entries):
            self._given_up += entries
        else:
            self._divide(entries)

    def next_group(self) -> Group:
        """The entries to send next. Empty if none are left: `rest` has those that are given up."""
        while self._groups and self._rejections < MOST_REJECTIONS:
            self._age, group = self._groups.popleft()
            if self._lost[self._age] < HOPELESS:
                return group
            self._given_up += group
        return ()

    def accepted(self) -> None:
        """The server has taken the group."""
        self._lost[self._age] = 0

    def rejected(self, group: Group) -> bool:
        """The server has rejected the group. Returns whether it is a single sample, which is lost."""
        self._rejections += 1
        if _is_one_sample(group):
            self._lost[self._age] += 1
            return True
        self._divide(group)
        return False

    def rest(self) -> list[Entry]:
        """The entries that are given up without another attempt."""
        return [*self._given_up, *(entry for _, group in self._groups for entry in group)]

    def _divide(self, group: Group) -> None:
        older, newer = _by_age(group)
        if older and newer:
            self._ages += 1
            self._groups.extendleft(((self._age, newer), (self._ages, older)))
            return
        middle = len(group) // 2
        parts = [(self._age, part) for part in (group[middle:], group[:middle]) if part]
        self._groups.extendleft(parts)


def _is_one_sample(group: Group) -> bool:
    return len(group) == 1 and len(group[0][1]) == 1


def _by_age(group: Group) -> tuple[Group, Group]:
    """Older and newer samples. Older are those that the server has probably, else the first half of a series."""
    late = [(series, [one for one in samples if one[0] <= series.last_ms]) for series, samples in group]
    others = [(series, [one for one in samples if one[0] > series.last_ms]) for series, samples in group]
    if any(samples for _, samples in late) and any(samples for _, samples in others):
        return [entry for entry in late if entry[1]], [entry for entry in others if entry[1]]
    older = [(series, samples[: len(samples) // 2]) for series, samples in group if len(samples) > 1]
    newer = [(series, samples[len(samples) // 2 :]) for series, samples in group]
    return older, newer if older else []
