"""How often the sampler's clock ticks.

Only samples divide what a loop without a DataLoader computes between its steps. At the usual rate these are too few for
some minutes, so the clock is faster at first. Later gaps are divided like those.
"""

from collections.abc import Iterable
from typing import Final

from otel_zernel_receivers.ebpf.tables.process_table import WatchedProcess

SOON_S: Final = 20.0
"""For so long, the clock is faster for a process."""
_FASTER, _FASTEST = 10, 199
"""By this factor, but no faster than so many ticks a second. At 190 Hz, samples take 0.8 % of a CPU."""


class Pace:
    """The ticks of the clock."""

    def __init__(self, frequency: int) -> None:
        """`frequency`: the usual number of ticks a second; 0 for none."""
        self._frequency = frequency
        self._since: dict[WatchedProcess, float] = {}

    def ticks(self, between_steps: Iterable[WatchedProcess], now: float) -> int:
        """The ticks a second at a time (s), while these processes compute between their steps."""
        for process in between_steps:
            self._since.setdefault(process, now)
        if not any(now - since < SOON_S for since in self._since.values()):
            return self._frequency
        return max(self._frequency, min(self._frequency * _FASTER, _FASTEST))

    def forget(self, process: WatchedProcess) -> None:
        """The process has ended."""
        self._since.pop(process, None)
