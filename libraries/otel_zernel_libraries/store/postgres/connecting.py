"""The pool of connections to PostgreSQL, and its TLS."""

import asyncio
import ssl
from pathlib import Path
from typing import Any, Final, Literal

import asyncpg

from otel_zernel.errors import CannotStart
from otel_zernel_libraries.store.address import PostgresAddress
from otel_zernel_libraries.store.config import DatabaseTlsConfig, StoreConfig, WritableStoreConfig

_GOODBYE: Final = 2.0
"""Seconds to wait for the ends of connections."""
_FOR_READING: Final = {"jit": "off", "plan_cache_mode": "force_custom_plan"}
"""Compiling a query over many partitions takes longer than a page. A plan that is made without the values of a query
knows neither its times nor its limit: it may read a partition instead of a page."""


async def open_pool(
    address: PostgresAddress, config: StoreConfig, setting: str, *, writable: bool
) -> "asyncpg.Pool[Any]":
    """A pool that connects when it is used. Raises `CannotStart` for unusable files of passwords and certificates."""
    security = await asyncio.to_thread(_security, config.tls, setting.replace("::url", "::tls"))
    hosts = [host for host, _ in address.hosts]
    pool: asyncpg.Pool[Any] = asyncpg.create_pool(
        host=hosts if len(hosts) > 1 else hosts[0],
        port=[port for _, port in address.hosts] if len(hosts) > 1 else address.hosts[0][1],
        user=address.user,
        database=address.database,
        password=_password(config, setting),
        ssl=security,
        timeout=config.connect_timeout,
        min_size=0,
        max_size=config.pool_size,
        reset=None if writable else _keep,
        target_session_attrs="read-write" if writable and len(hosts) > 1 else "any",
        server_settings={
            "application_name": "otel-zernel",
            "synchronous_commit": "off" if _may_lose_last_batches(config) else "on",
            "default_transaction_isolation": "read committed",
            **({} if writable else _FOR_READING),
        },
    )
    return await pool


async def close_pool(pool: "asyncpg.Pool[Any]") -> None:
    """Says goodbye on every connection, or breaks them if the server does not answer."""
    try:
        async with asyncio.timeout(_GOODBYE):
            await pool.close()
    except (TimeoutError, OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError):
        pool.terminate()


async def _keep(connection: Any) -> None:
    """Readers change nothing in a session. Resetting it would cost as much as a short query."""


def _may_lose_last_batches(config: StoreConfig) -> bool:
    return isinstance(config, WritableStoreConfig) and config.synchronous == "normal"


def _password(config: StoreConfig, setting: str) -> Any:
    """asyncpg calls it for every connection, so that a new content of the file needs no restart."""
    if config.password is not None:
        return config.password.get_secret_value()
    if config.password_file is None:
        return None
    file = Path(config.password_file)

    async def read() -> str:
        try:
            return (await asyncio.to_thread(file.read_text, "utf-8")).strip()
        except (OSError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not UTF-8"
            raise CannotStart(f"{setting.replace('::url', '::password_file')}: cannot read {file}: {reason}") from error

    return read


def _security(tls: DatabaseTlsConfig, setting: str) -> ssl.SSLContext | Literal["prefer"] | bool:
    if tls.mode == "disable":
        return False
    if tls.mode == "prefer":
        return "prefer"
    try:
        context = ssl.create_default_context(cafile=tls.ca_file)
    except (OSError, ssl.SSLError) as error:
        raise CannotStart(f"{setting}::ca_file: {tls.ca_file} cannot be used: {error.strerror or error}") from error
    context.check_hostname = tls.mode == "verify-full"
    if tls.mode == "require":
        context.verify_mode = ssl.CERT_NONE
    if tls.cert_file and tls.key_file:
        try:
            context.load_cert_chain(tls.cert_file, tls.key_file, password="")
        except (OSError, ssl.SSLError) as error:
            raise CannotStart(
                f"{setting}::cert_file: {tls.cert_file} and {tls.key_file} are not a PEM certificate and its key"
                f" without a password ({error.strerror or error})"
            ) from error
    return context
