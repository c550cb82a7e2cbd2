"""The times in which an exporter delivers nothing: in its health, and in the log at the beginning and the end."""

import math
from collections.abc import Callable

from otel_zernel.batch import ItemCount
from otel_zernel.component import Context
from otel_zernel.errors import Correctable
from otel_zernel.health import Outage
from otel_zernel.repeated import RepeatedByKey, more
from otel_zernel.text import spoken_duration

_SHORTEST = 1.0
"""Seconds. The end of a shorter outage is not logged, since one rejected batch is none."""


class OutageWatch:
    """Follows the attempts of one exporter."""

    def __init__(self, context: Context, waiting: Callable[[], ItemCount], longest: float = math.inf) -> None:
        """`waiting` counts the items that the exporter still has to deliver. A batch is kept for `longest` s."""
        self._context = context
        self._kept = "until you correct this" if math.isinf(longest) else f"for at most {spoken_duration(longest)}"
        self._waiting = waiting
        self._failures = 0
        """Failed attempts since the last delivered batch."""
        self._repeated = RepeatedByKey(context.clock.monotonic)
        """By the reason, so that another reason is logged at once."""

    @property
    def outage(self) -> Outage | None:
        """The present outage."""
        return self._context.health.outages.get(self._context.path)

    def failed(self, error: Exception, wait: float) -> None:
        """An attempt failed; the next one is in `wait` s."""
        if not isinstance(error, Correctable):
            self._failed(str(error))
            if due := self._repeated.add(str(error)):
                self._context.logger.warning("Export failed; retrying in %.1f s: %s%s", wait, error, more(due))
            return
        self._failed(f"{error}; the data are kept {self._kept}")
        if due := self._repeated.add((Correctable, error.code)):
            self._context.logger.error(
                "The server does not take the data, which are kept %s: %s%s", self._kept, error, more(due)
            )

    def given_up(self, error: Exception) -> None:
        """An attempt failed, and its batch is not sent again."""
        self._failed(str(error))

    def delivered(self) -> None:
        """A batch is delivered."""
        if not self._failures:
            return
        self._failures = 0
        outage = self._context.health.outages.pop(self._context.path, None)
        self._repeated = RepeatedByKey(self._context.clock.monotonic)
        lasted = self._context.clock.monotonic() - outage.since if outage else 0.0
        if lasted >= _SHORTEST:
            waiting, length = self._waiting(), spoken_duration(lasted)
            self._context.logger.info(
                "The exporter works again after %s; %s %s waiting.", length, waiting, waiting.verb
            )

    def _failed(self, reason: str) -> None:
        self._failures += 1
        now = self._context.clock.monotonic()
        if outage := self.outage:
            outage.last, outage.reason = now, reason
        else:
            self._context.health.outages[self._context.path] = Outage(now, now, reason, self._waiting)
