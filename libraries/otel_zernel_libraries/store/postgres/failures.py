"""Errors of PostgreSQL and of connections to it, in one sentence."""

import os
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import asyncpg

from otel_zernel.errors import CannotStart, Permanent, Retryable
from otel_zernel.text import one_line
from otel_zernel_libraries.store.address import PostgresAddress

_POOLER: Final = "a pooler mixes prepared statements; use its session mode, or PgBouncer with max_prepared_statements"
_WORDS: Final = {
    "28P01": "the server does not accept the user or the password; correct the user in the url, or the password",
    "28000": "the server does not accept the user from here; correct the user in the url, or pg_hba.conf",
    "3D000": "the database does not exist; create it, or correct the url",
    "42501": "the user lacks a right; grant it",
    "25006": "the server accepts no writes, and may be a standby; write the address of the primary in the url",
    "53100": "the disk of the server is full; make room or shorten the retention",
    "53200": "the server has no memory left",
    "53300": "the server has no free connection; raise its max_connections or lower pool_size",
    "57P01": "the server was shut down",
    "57P02": "the server crashed",
    "57P03": "the server is starting or stopping",
    "58030": "the disk of the server reports an error",
    "40P01": "writers waited for each other (deadlock)",
    "40001": "another transaction conflicted with this one",
    "55P03": "another program holds a lock",
    "42P01": "a table is missing; the next attempt creates it",
    "3F000": "the schema is missing; the next attempt creates it",
    "23503": "rows of series are missing; the next attempt writes them",
    "23514": "a partition is missing",
    "26000": _POOLER,
    "42P05": _POOLER,
}
"""By SQLSTATE (PostgreSQL, appendix A)."""
_LOST: Final = "the connection was lost"
_AT_START: Final = frozenset({"28P01", "28000", "3D000", "42501"})
"""A person has to change something."""
_NEVER: Final = ("22", "23", "54")
"""Classes of errors about the rows: data exceptions, constraints, limits of the program."""
STALE: Final = ("42P01", "23503", "3F000")
"""Tables, or rows in them, are not there any more: the ids in memory are worth nothing."""
AGAIN: Final = ("40P01", "40001", "23514")
"""The transaction was rolled back, and the next attempt may succeed at once."""


@contextmanager
def translated(address: PostgresAddress, *, setting: str | None = None) -> Iterator[None]:
    """Raises the errors inside as `Retryable`, `Permanent` or, with the `setting` at a start, as `CannotStart`."""
    try:
        yield
    except CannotStart as error:
        if setting:
            raise
        raise Retryable(str(error)) from error
    except asyncpg.PostgresError as error:
        raise _of_server(address, error, setting) from error
    except ssl.SSLCertVerificationError as error:
        words = f"the certificate of {address} is not accepted: {error.verify_message}; correct tls::ca_file"
        raise (CannotStart(f"{setting}: {words}") if setting else Retryable(words)) from error
    except asyncpg.TargetServerAttributeNotMatched as error:
        raise Retryable(f"{address}: none of these servers accepts writes") from error
    except (OSError, TimeoutError, asyncpg.InterfaceError, asyncpg.InternalClientError) as error:
        raise Retryable(f"no connection to {address}: {_of_connection(error)}") from error


def _of_server(
    address: PostgresAddress, error: asyncpg.PostgresError, setting: str | None
) -> Retryable | Permanent | CannotStart:
    code = error.sqlstate or ""
    # asyncpg itself raises errors of class 08, with sentences about its own protocol.
    words = (
        _LOST
        if code.startswith("08")
        else _WORDS.get(code) or one_line(error.args[0] if error.args else type(error).__name__)
    )
    detail = f" ({one_line(error)})" if code in ("42501", "28000", "42P01") else ""
    if setting and code in _AT_START:
        return CannotStart(f"{setting}: {address}: {words}{detail}")
    if code.startswith(_NEVER) and code not in (*AGAIN, *STALE):
        return Permanent(f"{address} does not accept the batch: {words}")
    return Retryable(f"{address}: {words}{detail}")


def _of_connection(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "the server does not answer in time; check the url, the network and its firewalls"
    if isinstance(error, socket.gaierror):
        return "the name of the host is unknown; correct the url"
    if isinstance(error, ConnectionRefusedError):
        return "no server listens there; start it, or correct the url"
    if isinstance(error, ConnectionError) and "SSL" in str(error):  # asyncpg has no class of its own for this answer
        return "the server refuses TLS (SSL); enable ssl in its postgresql.conf, or set tls::mode to disable"
    if isinstance(error, OSError):
        if error.errno and error.errno > 0:
            return os.strerror(error.errno)
        return "no server can be reached there; check the url, the network and its firewalls"
    return _LOST  # asyncpg's own errors are about the calls of its pool
