"""Makes one part of the steps dominate, on a quiet machine and on a busy one."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

FACTOR = 3.0
"""The duration of the slow part, as a multiple of the rest of a step: it takes three quarters of the time."""


def busy(seconds: float) -> None:
    """Computes in Python."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


class Slowness:
    """Measures the time between slow parts, and makes the next one FACTOR times as long as their mean.

    Other programs on the machine lengthen the rest of the steps, and the slow part with it.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        """The duration of the next slow part."""
        self._rest, self._count = 0.0, 0
        self._end: float | None = None

    @contextmanager
    def part(self) -> Iterator[None]:
        """The slow part of a step."""
        if self._end is not None:
            self._rest += time.monotonic() - self._end
            self._count += 1
            self.seconds = FACTOR * self._rest / self._count
        yield
        self._end = time.monotonic()
