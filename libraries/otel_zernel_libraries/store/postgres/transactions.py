"""Transactions that end when they are cancelled, also if the server does not answer."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import asyncpg

_PATIENCE: Final = 5.0
"""Seconds to wait for a ROLLBACK."""
_CONFIRMATION: Final = 2.0
"""Seconds to wait until the server has ended a cancelled query."""


def break_off(connection: "asyncpg.Connection[Any]") -> None:
    """Closes a connection at once, without the server. An inner block may have done so already.

    A broken connection is no longer in the pool, and breaking it again raises an error that would hide a cancellation.
    """
    with suppress(asyncpg.InterfaceError):
        connection.terminate()


@asynccontextmanager
async def writing_connection(pool: "asyncpg.Pool[Any]") -> AsyncIterator["asyncpg.Connection[Any]"]:
    """A connection of the pool for the block. A cancellation breaks it, since a server that hangs confirms none."""
    async with pool.acquire() as connection:
        try:
            yield connection
        except asyncio.CancelledError:
            break_off(connection)
            raise


@asynccontextmanager
async def reading_connection(pool: "asyncpg.Pool[Any]") -> AsyncIterator["asyncpg.Connection[Any]"]:
    """A connection of the pool for the block. After a cancellation, the server has some seconds to confirm it.

    Without that limit, a server that hangs would keep the connection's place in the pool for ever.
    """
    connection = await pool.acquire()
    try:
        yield connection
    finally:
        with suppress(TimeoutError):  # the connection is broken then, and its place is free
            await pool.release(connection, timeout=_CONFIRMATION)


@asynccontextmanager
async def transaction(connection: "asyncpg.Connection[Any]") -> AsyncIterator[None]:
    """A transaction for the block.

    asyncpg's own one waits for the server after a cancellation, without a limit: a server that hangs would hold the
    caller for ever. This one breaks the connection, and the server rolls back.
    """
    try:
        await connection.execute("BEGIN")
        yield
        await connection.execute("COMMIT")
    except asyncio.CancelledError:
        break_off(connection)
        raise
    except BaseException:
        await _roll_back(connection)
        raise


async def _roll_back(connection: "asyncpg.Connection[Any]") -> None:
    if connection.is_closed():
        return
    try:
        await connection.execute("ROLLBACK", timeout=_PATIENCE)
    except asyncio.CancelledError:
        break_off(connection)
        raise
    except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError):
        break_off(connection)
