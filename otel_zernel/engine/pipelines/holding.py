"""The times in which a receiver is held back: in its health, and in the log at the beginning and the end."""

from otel_zernel.component import Context
from otel_zernel.health import HeldBack
from otel_zernel.repeated import Repeated, more
from otel_zernel.text import spoken_duration


class HoldWatch:
    """Follows the refusals of one receiver's batches."""

    def __init__(self, context: Context | None = None) -> None:
        """`context` is that of the receiver. Without one, nothing is logged."""
        self.is_holding = False
        self._context = context
        self._repeated = Repeated(context.clock.monotonic) if context else None
        self._is_known = False
        """Whether the log has a line about the present hold. Only then it gets one about the end."""

    def held_back(self, reason: str) -> None:
        """A batch was refused, or waits for an exporter that makes no progress."""
        self.is_holding = True
        if self._context is None or self._repeated is None:
            return
        now = self._context.clock.monotonic()
        hold = self._context.health.holds.setdefault(self._context.path, HeldBack(now, now, reason, 0))
        hold.last, hold.reason = now, reason
        hold.refusals += 1
        if due := self._repeated.add():
            self._is_known = True
            self._context.logger.warning("The receiver is held back: %s%s", reason, more(due))

    def accepted(self) -> None:
        """A batch was accepted."""
        self.is_holding = False
        hold = self._context.health.holds.pop(self._context.path, None) if self._context else None
        if self._context and hold and self._is_known:
            self._is_known = False
            lasted = spoken_duration(self._context.clock.monotonic() - hold.since)
            self._context.logger.info(
                "The receiver's batches are accepted again after %s, in which %d attempts were refused.",
                lasted,
                hold.refusals,
            )
