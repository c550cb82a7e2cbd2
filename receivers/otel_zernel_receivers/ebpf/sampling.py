"""Watching launches for a part of each second only, where more would take too much of a CPU."""

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from otel_zernel.component import Context
from otel_zernel_receivers.ebpf.attaching import Mode
from otel_zernel_receivers.ebpf.overhead import LAUNCHES, Overhead, hits_of
from otel_zernel_receivers.ebpf.series import SeriesReading
from otel_zernel_receivers.ebpf.tables import Readings

CYCLE = 1.0
"""Seconds of which launches are watched for a share, at least: switching takes some 5 ms each time."""


@dataclass(frozen=True, slots=True)
class Watched:
    """For how long probes were on launches, of the time that a reading covers; both in seconds."""

    seconds: float
    of: float

    @property
    def is_sample(self) -> bool:
        return self.seconds < self.of

    @property
    def share(self) -> float:
        return self.seconds / self.of if self.is_sample else 1.0

    def scaled(self, reading: SeriesReading) -> SeriesReading:
        """The reading as it would be if launches had been watched all the time, at the pace that they had."""
        factor = 1 / self.share if self.share else 1.0
        counts = np.rint(reading.counts * factor).astype(np.int64)
        return replace(reading, counts=counts, sum_ns=round(reading.sum_ns * factor))

    def has_sampled(self, reading: SeriesReading) -> bool:
        """Whether it tells of only a part of the calls."""
        return self.is_sample and reading.operation in LAUNCHES


class Switchable(Protocol):
    """Probes on launches."""

    def switch_on(self) -> None: ...

    def switch_off(self) -> None: ...


class Sampling:
    """Switches the probes on launches, and keeps time. One thread at a time may use it."""

    def __init__(self, overhead: Overhead, attachments: Switchable, mode: Mode, context: Context) -> None:
        self._overhead, self._attachments, self._context = overhead, attachments, context
        # The others have two links or more for a function, and while one is being closed, the next one costs.
        self._can_switch = mode is Mode.SESSION
        self._monotonic = context.clock.monotonic
        self._read_at = self._monotonic()
        self._on_since: float | None = self._read_at
        self._off_at_times = False
        self._seconds = 0.0

    @property
    def is_on(self) -> bool:
        """Whether launches are watched for a part of the time only."""
        return self._can_switch and self._overhead.share < 1.0

    def switches(self, interval: float) -> list[tuple[float, Callable[[], None]]]:
        """What to do in an interval, and how many seconds after its beginning or what was done before. The time at
        which launches are watched is random, since jobs have a rhythm."""
        if not self.is_on:
            return [] if self._on_since is not None else [(0.0, self._switch_on)]
        length = self._overhead.share * interval
        begin = random.uniform(0, interval - length)  # noqa: S311  # no secret
        leave = [(0.0, self._switch_off)] if self._on_since is not None else []
        return [*leave, (begin, self._switch_on), (length, self._switch_off)]

    def take(self) -> Watched:
        """The time since it was last taken."""
        now = self._monotonic()
        self._add_until(now)
        of, self._read_at = now - self._read_at, now
        seconds = self._seconds if self._off_at_times else of
        self._seconds, self._off_at_times = 0.0, self._on_since is None
        return Watched(seconds, of)

    def learn(self, readings: Readings, watched: Watched) -> None:
        """Takes the cost of what was read into account, and says so when sampling begins and ends."""
        before = self._overhead.share
        self._overhead.add(hits_of(readings.series, readings.cpu), watched.of, watched.seconds)
        if (before < 1.0) != (self._overhead.share < 1.0):
            self._tell()

    def _tell(self) -> None:
        logger, percent = self._context.logger, 100 * self._overhead.load
        if self._overhead.share == 1.0:
            logger.info("Probes take no more of a CPU than max_overhead")
        elif self._can_switch:
            logger.warning("Probes take %.1f %% of a CPU: launches are now watched for a part of each second", percent)
        else:
            logger.warning("Probes take %.1f %% of a CPU; this kernel is too slow to take some off at times", percent)

    def _switch_on(self) -> None:
        self._attachments.switch_on()
        self._on_since = self._monotonic()
        self._off_at_times = True

    def _switch_off(self) -> None:
        self._add_until(self._monotonic())
        self._on_since, self._off_at_times = None, True
        self._attachments.switch_off()

    def _add_until(self, now: float) -> None:
        if self._on_since is not None:
            self._seconds += now - self._on_since
            self._on_since = now
