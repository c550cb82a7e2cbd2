"""What a store contains: numbers of points and their times."""

from dataclasses import dataclass

from otel_zernel_libraries.store.reading import StoreReader
from otel_zernel_libraries.store.rows.tables import POINT_TABLES

_EXACT_BELOW = 1_000_000
"""Points. Counting more of them takes PostgreSQL too long."""


@dataclass(slots=True, frozen=True)
class Contents:
    """The points of all tables."""

    points: int
    is_estimate: bool
    oldest_ns: int | None
    newest_ns: int | None


async def contents_of(reader: StoreReader) -> Contents:
    """Counts the points; many points in PostgreSQL are estimated by its statistics."""
    tables = [reader.table(table.name) for table in POINT_TABLES]
    extremes = [row for name in tables for row in await reader.fetch(f"SELECT min(time), max(time) FROM {name}")]  # noqa: S608
    oldest = min((row[0] for row in extremes if row[0] is not None), default=None)
    newest = max((row[1] for row in extremes if row[1] is not None), default=None)
    if reader.dialect == "postgresql" and (estimate := await _estimate(reader, tables)) >= _EXACT_BELOW:
        return Contents(estimate, is_estimate=True, oldest_ns=oldest, newest_ns=newest)
    counts = [row[0] for name in tables for row in await reader.fetch(f"SELECT count(*) FROM {name}")]  # noqa: S608
    return Contents(sum(counts), is_estimate=False, oldest_ns=oldest, newest_ns=newest)


async def _estimate(reader: StoreReader, tables: list[str]) -> int:
    """The rows by the statistics of the partitions. Those that were never analysed count by their size."""
    sql = (
        "SELECT coalesce(sum(CASE WHEN c.reltuples >= 0 THEN c.reltuples "
        "ELSE pg_relation_size(c.oid) / 100 END), 0)::bigint FROM pg_inherits i "
        "JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = to_regclass($1)"
    )
    return sum([(await reader.fetch(sql, name))[0][0] for name in tables])
