"""The sql exporter: stores each batch in one transaction."""

import asyncio
from collections.abc import Iterator
from typing import Final, Self

from otel_zernel.batch import Batch
from otel_zernel.component import Context, Exporter
from otel_zernel.errors import Retryable, invalid_is_permanent
from otel_zernel.runtime.tasks import cancel
from otel_zernel_exporters.sql.config import SqlConfig
from otel_zernel_exporters.sql.declared import REPEATED, STORED
from otel_zernel_libraries.store.writer import WriterOptions, Written

_MAINTENANCE: Final = 3600.0
"""Seconds between two removals of old points at most."""
_SOON: Final = 60.0
"""Seconds to the next attempt after a failed one."""
_OPENLY: Final = (
    "the password crosses the network to a server that nobody verifies; set mode: verify-full, and ca_file unless the "
    "authorities of the system signed its certificate"
)


class SqlExporter(Exporter):
    """Stores metrics and spans in SQLite or PostgreSQL. What arrives twice is stored once."""

    Config = SqlConfig
    stability = "beta"
    delivery = "remote"
    signals = frozenset({"metrics", "traces"})
    config: SqlConfig

    @classmethod
    def advice(cls, config: SqlConfig) -> Iterator[tuple[str, str]]:
        if config.sends_passwords_openly:
            yield "tls::mode", _OPENLY

    def __init__(self, config: SqlConfig, context: Context) -> None:
        super().__init__(config, context)
        from otel_zernel_libraries.store.opening import writer_for  # a list of components does without it

        self._store = writer_for(config, _options(config, context.path))
        self._stored = context.meter.create_counter(*STORED.counter)
        self._repeated = context.meter.create_counter(*REPEATED.counter)

    async def __aenter__(self) -> Self:
        self._stack.push_async_callback(self._store.close)
        wait = 0.0
        try:
            await self._store.open()
        except Retryable as error:
            wait = _SOON
            self.context.logger.warning("Cannot open the store; trying again: %s", error)
        maintaining = asyncio.create_task(self._maintain(wait), name=f"maintain {self.context.path}")
        self._stack.push_async_callback(cancel, maintaining)
        return self

    async def export(self, batch: Batch) -> None:
        with invalid_is_permanent():
            self._count(await self._store.write(batch, self.context.clock.time_ns()))

    def _count(self, written: Written) -> None:
        if written.stored:
            self._stored.add(written.stored)
        if written.repeated:
            self._repeated.add(written.repeated)
        if written.conflicting:
            self.context.drop(written.conflicting, "conflicting_value")
        for reason, points in written.dropped.items():
            self.context.drop(points, reason)

    async def _maintain(self, wait: float) -> None:
        """Removes old points and prepares partitions, again and again, the first time after `wait` s."""
        while True:
            await self.context.clock.sleep(wait)
            wait = min(_MAINTENANCE, self.config.partition / 4)
            try:
                if removed := await self._store.maintain(self.context.clock.time_ns()):
                    self.context.logger.info("Removed %d old %s", removed, self._store.pieces)
            except Exception as error:  # noqa: BLE001  # without this task, old points would fill the disk
                wait = _SOON
                self.context.logger.warning("Cannot remove old points; trying again: %s", error)


def _options(config: SqlConfig, setting: str) -> WriterOptions:
    return WriterOptions(
        setting=setting,
        series=config.series_cache,
        partition_ns=round(config.partition * 1e9),
        retention_ns=round(config.retention * 1e9),
        max_future_ns=round(config.max_future * 1e9),
    )
