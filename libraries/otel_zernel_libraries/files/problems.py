"""Logs a lasting problem once, not at every attempt."""

from otel_zernel.component import Logger

_MAX_SUBJECTS = 10_000


class Problems:
    """The current problem of each subject, such as a file."""

    def __init__(self, logger: Logger) -> None:
        self._logger = logger
        self._current: dict[str, str] = {}

    def warn(self, subject: str, problem: str) -> None:
        """Logs the problem, unless it is the subject's current one."""
        if self._current.get(subject) != problem:
            if len(self._current) >= _MAX_SUBJECTS:
                self._current.clear()
            self._current[subject] = problem
            self._logger.warning("%s", problem)

    def clear(self, subject: str) -> None:
        """Logs the end of the subject's problem, if it had one."""
        if problem := self._current.pop(subject, None):
            self._logger.info("Solved: %s", problem)
