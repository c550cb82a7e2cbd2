"""The store of a configuration."""

from otel_zernel_libraries.store.address import SqliteAddress
from otel_zernel_libraries.store.config import StoreConfig, WritableStoreConfig
from otel_zernel_libraries.store.reading import StoreReader
from otel_zernel_libraries.store.sqlite.sqlite_reader import SqliteReader
from otel_zernel_libraries.store.sqlite.sqlite_writer import SqliteWriter
from otel_zernel_libraries.store.writer import StoreWriter, WriterOptions


def writer_for(config: WritableStoreConfig, options: WriterOptions) -> StoreWriter:
    """A store to write to."""
    address = config.address
    if isinstance(address, SqliteAddress):
        return SqliteWriter(address.path, config, options)
    from otel_zernel_libraries.store.postgres.postgres_writer import (
        PostgresWriter,  # needs asyncpg, an optional package
    )

    return PostgresWriter(address, config, options)


def reader_for(config: StoreConfig, setting: str) -> StoreReader:
    """A store to read from. `setting` is the path of the component in the configuration."""
    address = config.address
    if isinstance(address, SqliteAddress):
        return SqliteReader(address.path, config, f"{setting}::url")
    from otel_zernel_libraries.store.postgres.postgres_reader import PostgresReader  # needs asyncpg

    return PostgresReader(address, config, f"{setting}::url")
