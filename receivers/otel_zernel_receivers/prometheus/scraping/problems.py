"""The problems of targets: in the log without repetition, and in the health of the receiver."""

from dataclasses import dataclass

from otel_zernel.clock import Clock
from otel_zernel.component import Context

_QUIET = 60.0
"""Seconds after a line in the log in which the same subject logs no other."""
_REMINDER = 3600.0
"""Seconds between the lines about a problem that stays."""


@dataclass(slots=True)
class _Trouble:
    text: str = ""
    """Empty while there is no problem."""
    times: int = 0
    logged_at: float = -_REMINDER
    unlogged: int = 0
    said: bool = False
    """Whether the log has the current problem."""


class ScrapeProblems:
    """The current problem of each target and source."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._clock: Clock = context.clock
        self._troubles: dict[str, _Trouble] = {}

    def warn(self, subject: str, problem: str) -> None:
        """A problem, one sentence. It is logged when it begins or changes, and every hour."""
        trouble = self._troubles.setdefault(subject, _Trouble())
        now = self._clock.monotonic()
        is_new = trouble.text != problem
        trouble.text, trouble.times = problem, 1 if is_new else trouble.times + 1
        wait = _QUIET if is_new or not trouble.said else _REMINDER
        if now - trouble.logged_at >= wait:
            self._log(trouble, now)
        else:
            trouble.unlogged += 1
            trouble.said = trouble.said and not is_new
        self._report()

    def succeed(self, subject: str) -> None:
        """The end of the subject's problem, if it had one."""
        trouble = self._troubles.get(subject)
        if trouble is None or not trouble.text:
            return
        if trouble.said:
            self._context.logger.info("Solved: %s", trouble.text)
        trouble.text, trouble.times, trouble.said = "", 0, False
        self._report()

    def forget(self, subject: str) -> None:
        """The subject is gone."""
        if self._troubles.pop(subject, None):
            self._report()

    def _log(self, trouble: _Trouble, now: float) -> None:
        repeated = f" ({trouble.unlogged} more since the last line)" if trouble.unlogged else ""
        self._context.logger.warning("%s%s", trouble.text, repeated)
        trouble.logged_at, trouble.unlogged, trouble.said = now, 0, True

    def _report(self) -> None:
        current = [trouble.text for trouble in self._troubles.values() if trouble.text]
        if not current:
            return self._context.report(None)
        more = f" (and {len(current) - 1} more problems)" if len(current) > 1 else ""
        return self._context.report(f"{current[0]}{more}")
