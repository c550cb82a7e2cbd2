"""When memory is freed."""

_EFFECTIVE = 0.05  # an attempt that frees a smaller part doubles the interval
_LEAST_SHARE = 0.95  # of the check interval: at least so much time between two attempts


class FreeingSchedule:
    """The times of attempts to free memory above one limit. All times are seconds of one clock."""

    def __init__(self, shortest: float, longest: float, check_interval: float) -> None:
        self._shortest = max(shortest, check_interval * _LEAST_SHARE)
        self._longest = max(longest, self._shortest) if longest else self._shortest
        self._interval = self._shortest
        self._last: float | None = None
        self._used_before = 0

    def is_due(self, now: float) -> bool:
        return self._last is None or now - self._last >= self._interval

    def start(self, now: float, used: int) -> None:
        """Notes an attempt and the bytes in use before it."""
        self._last, self._used_before = now, used

    def finish(self, used: int) -> None:
        """Notes the bytes in use after the attempt."""
        if self._used_before - used >= self._used_before * _EFFECTIVE:
            self._interval = self._shortest
        else:
            self._interval = min(self._interval * 2, self._longest)

    def relax(self) -> None:
        """Memory is below the limit: the next attempts come at the shortest interval."""
        self._interval = self._shortest
