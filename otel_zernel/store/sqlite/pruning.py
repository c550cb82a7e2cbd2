"""Removes the series whose points are all gone."""

import sqlite3
from typing import Final

REMOVALS: Final = -1
"""The slot of `ingest` with the number of removals. Writers keep the ids of series as long as it stays the same."""
_SOME: Final = 1000
"""Series that are looked at in one transaction."""
_UNUSED: Final = """
SELECT id FROM (SELECT id FROM series WHERE id > ? ORDER BY id LIMIT ?) AS some
WHERE NOT EXISTS (SELECT 1 FROM points WHERE series_id = some.id)
AND NOT EXISTS (SELECT 1 FROM histograms WHERE series_id = some.id)
AND NOT EXISTS (SELECT 1 FROM exponential_histograms WHERE series_id = some.id)
AND NOT EXISTS (SELECT 1 FROM summaries WHERE series_id = some.id)
"""
_RESOURCES: Final = """
DELETE FROM resources WHERE NOT EXISTS (SELECT 1 FROM series WHERE resource_id = resources.id)
AND NOT EXISTS (SELECT 1 FROM spans WHERE resource_id = resources.id)
"""


def removals(connection: sqlite3.Connection) -> int:
    """The number of removals so far."""
    (number,) = connection.execute("SELECT batches FROM ingest WHERE slot = ?", (REMOVALS,)).fetchone()
    return int(number)


def remove_series(connection: sqlite3.Connection, after: int) -> int | None:
    """Removes the series without points among the next ones after an id, in the open transaction.

    Returns the id to go on with; None at the end, after it has removed the resources without series.
    """
    last = "SELECT max(id) FROM (SELECT id FROM series WHERE id > ? ORDER BY id LIMIT ?)"
    (end,) = connection.execute(last, (after, _SOME)).fetchone()
    if end is None:
        _count(connection, connection.execute(_RESOURCES).rowcount)
        return None
    _count(connection, connection.execute(f"DELETE FROM series WHERE id IN ({_UNUSED})", (after, _SOME)).rowcount)  # noqa: S608
    return int(end)


def _count(connection: sqlite3.Connection, removed: int) -> None:
    if removed:
        connection.execute("UPDATE ingest SET batches = batches + 1 WHERE slot = ?", (REMOVALS,))
