"""Transactions of SQLite."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal


@contextmanager
def transaction(
    connection: sqlite3.Connection, lock: Literal["IMMEDIATE", "EXCLUSIVE"] = "IMMEDIATE"
) -> Iterator[None]:
    """One transaction: what it writes is in the file at the exit. An error undoes it."""
    connection.execute(f"BEGIN {lock}")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
