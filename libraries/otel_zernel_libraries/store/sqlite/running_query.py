"""A query that may be interrupted from another thread."""

import sqlite3
from collections.abc import Sequence
from threading import Event
from typing import Any, Final

_STEPS: Final = 100_000
"""Steps of a query, of about 1 ms, after which it looks for an interruption."""


class RunningQuery:
    """Runs once. An interruption before its start prevents it, and never meets a later query of the connection.

    `Connection.interrupt` would do nothing in the moment before SQLite begins, and the query would run to its end.
    """

    def __init__(self, sql: str, values: Sequence[Any]) -> None:
        self._sql = sql
        self._values = values
        self._interrupted = Event()

    def interrupt(self) -> None:
        """Ends the query soon, from any thread."""
        self._interrupted.set()

    def rows(self, connection: sqlite3.Connection) -> list[Sequence[Any]]:
        """All rows. Raises `sqlite3.Error`, also after an interruption."""
        if self._interrupted.is_set():
            raise sqlite3.OperationalError("interrupted")
        connection.set_progress_handler(self._interrupted.is_set, _STEPS)
        try:
            return connection.execute(self._sql, self._values).fetchall()
        finally:
            connection.set_progress_handler(None, 0)
