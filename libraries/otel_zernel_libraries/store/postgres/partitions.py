"""Partitions: one table for the points of each period of time, dropped as a whole."""

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from otel_zernel_libraries.store.postgres.transactions import transaction
from otel_zernel_libraries.store.rows.tables import TableName

if TYPE_CHECKING:
    from asyncpg import Connection

_LOCK: Final = 0x6F7A7375
"""The advisory lock of those who create partitions."""
_BOUND: Final = re.compile(r"FROM \('(-?\d+)'\) TO \('(-?\d+)'\)")
_EXISTING: Final = """
SELECT child.relname, pg_get_expr(child.relpartbound, child.oid) FROM pg_inherits
JOIN pg_class child ON child.oid = inhrelid
WHERE inhparent = to_regclass($1) AND NOT inhdetachpending
"""
_PENDING: Final = """
SELECT child.relname FROM pg_inherits JOIN pg_class child ON child.oid = inhrelid
WHERE inhparent = to_regclass($1) AND inhdetachpending
"""
_DETACHED: Final = """
SELECT relname FROM pg_class WHERE relnamespace = to_regnamespace($1) AND relkind = 'r' AND relname ~ $2
AND NOT relispartition
"""
_PATIENCE: Final = 60.0
"""Seconds to wait for those who read a partition that is to be dropped."""
Span = tuple[int, int]
"""The first ns of a partition, and the first after it."""


class Partitions:
    """The partitions of all tables, as far as this process knows them."""

    def __init__(self, schema: str, period_ns: int, most: int) -> None:
        self._schema = schema
        self._most = most
        self._period = period_ns
        self._ready: set[tuple[TableName, int]] = set()
        """Tables and numbers of periods that have a partition."""

    def forget(self) -> None:
        """After a partition was missing."""
        self._ready.clear()

    def period(self, time: int) -> int:
        """The number of the period of a time."""
        return time // self._period

    def periods(self, times: Iterable[int]) -> set[int]:
        """The numbers of the periods of these times."""
        period = self._period
        return {time // period for time in times}

    def missing(self, table: TableName, periods: Iterable[int]) -> list[int]:
        """The periods that may have no partition, the oldest first."""
        return sorted(period for period in periods if (table, period) not in self._ready)

    async def create(self, connection: "Connection[Any]", table: TableName, periods: Iterable[int]) -> list[int]:
        """Creates the partitions that do not exist. Neither readers nor writers of the table wait meanwhile.

        Returns the periods for which there is no room.
        """
        done, refused = [], []
        async with transaction(connection):
            await connection.execute("SELECT pg_advisory_xact_lock($1, hashtext($2))", _LOCK, self._schema)
            taken = list((await self.existing(connection, table)).values())
            for period in periods:
                free = free_spans((period * self._period, (period + 1) * self._period), taken)
                if len(taken) + len(free) > self._most:
                    refused.append(period)
                    continue
                for span in free:
                    await self._create(connection, table, span)
                taken += free
                done.append(period)
        self._ready.update((table, period) for period in done)
        return refused

    async def drop_before(self, connection: "Connection[Any]", table: TableName, time_ns: int) -> int:
        """Drops the partitions that end before a time, and returns their number. Nobody waits for it.

        The connection must not be in a transaction. A partition that somebody reads for longer than a minute is
        dropped by a later call.
        """
        dropped = 0
        try:
            await self._drop_detached(connection, table)
            for name, (_, end) in (await self.existing(connection, table)).items():
                if end <= time_ns:
                    await self._detach(connection, table, name, "CONCURRENTLY")
                    await connection.execute(f"DROP TABLE {self._schema}.{name}")
                    dropped += 1
        except TimeoutError:  # somebody reads the partition
            return dropped
        finally:
            self.forget()
        return dropped

    async def _drop_detached(self, connection: "Connection[Any]", table: TableName) -> None:
        """Finishes what an earlier call did not: partitions that were waited for, and tables of a killed process."""
        for (name,) in await connection.fetch(_PENDING, f"{self._schema}.{table}"):
            await self._detach(connection, table, name, "FINALIZE")
        for (name,) in await connection.fetch(_DETACHED, self._schema, f"^{table}_[0-9]{{8}}_[0-9]{{6}}(_[0-9]+)?$"):
            await connection.execute(f"DROP TABLE {self._schema}.{name}")

    async def _detach(self, connection: "Connection[Any]", table: TableName, name: str, how: str) -> None:
        detach = f"ALTER TABLE {self._schema}.{table} DETACH PARTITION {self._schema}.{name} {how}"
        await connection.execute(detach, timeout=_PATIENCE)

    async def existing(self, connection: "Connection[Any]", table: TableName) -> dict[str, Span]:
        """The partitions of a table: names and spans."""
        fetch = await connection.fetch(_EXISTING, f"{self._schema}.{table}")
        bounds = ((name, _BOUND.search(bound)) for name, bound in fetch)
        return {name: (int(bound[1]), int(bound[2])) for name, bound in bounds if bound}

    async def _create(self, connection: "Connection[Any]", table: TableName, span: Span) -> None:
        """A table of its own is attached: creating it as a partition would wait for all readers of the parent."""
        name = f"{self._schema}.{partition_name(table, span[0])}"
        parent = f"{self._schema}.{table}"
        await connection.execute(f"CREATE TABLE {name} (LIKE {parent} INCLUDING CONSTRAINTS)")
        await connection.execute(
            f"ALTER TABLE {parent} ATTACH PARTITION {name} FOR VALUES FROM ({span[0]}) TO ({span[1]})"
        )


def partition_name(table: TableName, start_ns: int) -> str:
    """`points_20261122_000000`, by the first second. Partitions between seconds have their ns in the name."""
    seconds, rest = divmod(start_ns, 10**9)
    text = f"{datetime.fromtimestamp(seconds, UTC):%Y%m%d_%H%M%S}"
    return f"{table}_{text}_{rest}" if rest else f"{table}_{text}"


def free_spans(wanted: Span, taken: Iterable[Span]) -> list[Span]:
    """The parts of a span that no other span has: partitions of another length may be there already."""
    begin, end = wanted
    free = []
    for other_begin, other_end in sorted(taken):
        if other_end <= begin or other_begin >= end:
            continue
        if other_begin > begin:
            free.append((begin, other_begin))
        begin = max(begin, other_end)
    return [*free, (begin, end)] if begin < end else free
