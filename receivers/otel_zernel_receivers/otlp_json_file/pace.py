"""The pace of a replay, and the shift of recorded times to the present."""

from collections.abc import Iterator
from fractions import Fraction
from typing import Any, Literal

from otel_zernel.batch import Batch, points
from otel_zernel.clock import Clock

_LAST_NS = 2**64 - 1


class Pace:
    """Assigns to each record of one replay the time to emit it. Records without a time follow at once."""

    def __init__(self, speed: float, timestamps: Literal["recorded", "now", "moved"], clock: Clock) -> None:
        """`speed`: recorded seconds in a second; 0 for no pauses.

        With a speed of 10 and `now`, times are ten times closer together: none is ahead of the clock. With `moved`,
        they keep their distances.
        """
        self._speed = Fraction(speed)
        self._shifts = timestamps != "recorded"
        self._divisor = self._speed if timestamps == "now" else Fraction(1)
        self._clock = clock
        self._newest_ns = 0
        """The newest time of the replay."""
        self._first_ns: int | None = None
        """The time of the first record."""
        self._began_ns = 0
        """The clock's time of the first record."""
        self._began = 0.0

    def restart(self) -> None:
        """The next record is the first one of a new round."""
        self._first_ns = None

    def schedule(self, batch: Batch) -> float:
        """The moment to emit a record, in seconds of the monotonic clock. Shifts the times in it."""
        if not self._speed:
            return 0.0
        latest = max((getattr(holder, name) for holder, name in _times(batch, edit=False)), default=0)
        if not latest:
            return 0.0
        if self._first_ns is None:
            self._first_ns, self._began = latest, self._clock.monotonic()
            self._began_ns = max(self._clock.time_ns(), self._newest_ns)
        if self._shifts:
            for holder, name in list(_times(batch, edit=True)):
                setattr(holder, name, self._shifted(getattr(holder, name)))
        return self._began + float((latest - self._first_ns) / self._speed) / 1e9

    def _shifted(self, time_ns: int) -> int:
        since = (time_ns - (self._first_ns or 0)) * self._divisor.denominator // self._divisor.numerator
        shifted = min(max(1, self._began_ns + since), _LAST_NS)
        self._newest_ns = max(self._newest_ns, shifted)
        return shifted


def _times(batch: Batch, *, edit: bool) -> Iterator[tuple[Any, str]]:
    """The messages with a time, and the name of the field. Times that are not set (0) are left out."""
    fields = ("start_time_unix_nano", "time_unix_nano", "end_time_unix_nano", "observed_time_unix_nano")
    for holder in _holders(batch, edit=edit):
        for name in fields:
            if getattr(holder, name, 0):
                yield holder, name


def _holders(batch: Batch, *, edit: bool) -> Iterator[Any]:
    """The messages that may have a time: points, exemplars, spans, events, log records."""
    if batch.has_metrics:
        for resource in (batch.edit_metrics() if edit else batch.metrics).resource_metrics:
            for metric in (metric for scope in resource.scope_metrics for metric in scope.metrics):
                for point in points(metric):
                    yield point
                    yield from getattr(point, "exemplars", ())
    if batch.has_spans:
        for traced in (batch.edit_spans() if edit else batch.spans).resource_spans:
            for span in (span for spans in traced.scope_spans for span in spans.spans):
                yield span
                yield from span.events
    if batch.has_logs:
        for logged in (batch.edit_logs() if edit else batch.logs).resource_logs:
            yield from (record for logs in logged.scope_logs for record in logs.log_records)
