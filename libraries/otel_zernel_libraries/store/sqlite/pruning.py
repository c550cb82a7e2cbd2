"""Removes the series whose points are all gone."""

import sqlite3
from typing import Final

from otel_zernel_libraries.store.ingest import IDENTITY, REMOVALS

_SOME: Final = 1000
"""Series that are looked at in one transaction."""
_COUNT: Final = "INSERT INTO ingest VALUES (?, 1) ON CONFLICT (slot) DO UPDATE SET batches = batches + 1"
_BEGIN: Final = "INSERT INTO ingest VALUES (?, 0), (?, random() >> 2) ON CONFLICT DO NOTHING"
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
    """A number that changes with each removal of series, and if the table was emptied.

    Writers keep the ids of series as long as it stays the same. Begins the table in the open transaction if necessary.
    """
    select = "SELECT sum(batches) FROM ingest WHERE slot < 0 HAVING count(*) = 2"
    if not (found := connection.execute(select).fetchone()):
        connection.execute(_BEGIN, (REMOVALS, IDENTITY))
        found = connection.execute(select).fetchone()
    return int(found[0])


def count(connection: sqlite3.Connection, slot: int) -> None:
    """Adds 1 to the number of a slot."""
    connection.execute(_COUNT, (slot,))


def remove_series(connection: sqlite3.Connection, after: int) -> int | None:
    """Removes the series without points among the next ones after an id, in the open transaction.

    Returns the id to go on with; None at the end, after it has removed the resources without series.
    """
    last = "SELECT max(id) FROM (SELECT id FROM series WHERE id > ? ORDER BY id LIMIT ?)"
    (end,) = connection.execute(last, (after, _SOME)).fetchone()
    if end is None:
        removed = connection.execute(_RESOURCES).rowcount
    else:
        removed = connection.execute(f"DELETE FROM series WHERE id IN ({_UNUSED})", (after, _SOME)).rowcount  # noqa: S608
    if removed:
        count(connection, REMOVALS)
    return None if end is None else int(end)
