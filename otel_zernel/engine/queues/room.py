"""Room in a queue, shared by signal: in an outage, a signal that floods does not push out the others."""

from collections.abc import Collection, Iterable

from otel_zernel.batch import SIGNALS, Signal


class SharedRoom:
    """How much of a limit the entries of each signal take.

    Half of the limit is guaranteed, in equal shares, to the signals that have come or are expected. The rest is first
    come, first served. A single signal has it all. A signal without an entry may take all that is left, so that a batch
    larger than the share fits.
    """

    def __init__(self, limit: int | None) -> None:
        """None for no limit."""
        self.limit = limit
        self.total = 0
        self._expected: frozenset[Signal] = frozenset()
        self._taken: dict[Signal, int] = {}
        self._leaving: set[Signal] = set()
        """The signals whose share ends with their last entry."""

    def expect(self, signals: Iterable[Signal], carried: Collection[Signal] = SIGNALS) -> None:
        """Guarantees a share to these signals before their first entry, in place of those expected before.

        A signal that is not `carried` any more loses its share with its last entry.
        """
        self._expected = frozenset(signals)
        self._leaving = self._taken.keys() - carried
        for signal in tuple(self._leaving):
            self.take(signal, 0)

    def take(self, signal: Signal, amount: int) -> None:
        """An entry takes room, even if it does not fit. A negative amount is free again."""
        self._taken[signal] = self._taken.get(signal, 0) + amount
        self.total += amount
        if signal in self._leaving and not self._taken[signal]:
            self._leaving.remove(signal)
            del self._taken[signal]

    def fits(self, signal: Signal, amount: int) -> bool:
        """Whether this much more of the signal fits, into its share or the rest."""
        if self.limit is None:
            return True
        if self.total + amount > self.limit:
            return False
        if not self._taken.get(signal):
            return True
        known = self._expected | self._taken.keys()
        share = self.limit // 2 // len(known)
        above = {other: max(0, taken - share) for other, taken in self._taken.items()}
        above[signal] = self._taken[signal] + amount - share
        return above[signal] <= 0 or sum(above.values()) <= self.limit - share * len(known)
