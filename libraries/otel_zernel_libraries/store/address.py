"""The URL of a database."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

_POSTGRES: Final = ("postgresql", "postgres")
_PORT: Final = 5432
_EXAMPLES: Final = "write sqlite:///var/lib/otel-zernel/metrics.db or postgresql://host:5432/database"


@dataclass(frozen=True, slots=True)
class SqliteAddress:
    """A file."""

    path: Path

    def __str__(self) -> str:
        return str(self.path)


@dataclass(frozen=True, slots=True)
class PostgresAddress:
    """Servers of one cluster. A host that begins with `/` is the directory of a Unix socket."""

    hosts: tuple[tuple[str, int], ...]
    user: str | None
    database: str

    def __str__(self) -> str:
        """`db.example.com:5432/metrics`, without the user."""
        places = (host if host.startswith("/") else f"{host}:{port}" for host, port in self.hosts)
        return f"{','.join(places)}/{self.database}"

    @property
    def is_remote(self) -> bool:
        """Whether passwords and data leave this machine."""
        return any(not host.startswith("/") and host not in ("localhost", "127.0.0.1", "::1") for host, _ in self.hosts)


DatabaseAddress = SqliteAddress | PostgresAddress


def parse_url(url: str) -> DatabaseAddress:
    """The address in `sqlite:///path` or `postgresql://user@host:port/database`.

    `postgresql://h1,h2/database` names several servers: the first one that accepts writes is used. A Unix socket is
    `postgresql://user@/database?host=/run/postgresql`. Raises `ValueError` for other text.
    """
    try:
        parts = urlsplit(url)
        address = _sqlite(parts) if parts.scheme == "sqlite" else _postgres(parts)
    except ValueError as error:
        raise ValueError(f"{error}; {_EXAMPLES}") from None
    return address


def _sqlite(parts: SplitResult) -> SqliteAddress:
    path = unquote(parts.path)
    if parts.netloc or parts.query or parts.fragment or path in ("", "/"):
        raise ValueError("a URL of SQLite is sqlite:// and the path of a file, with three slashes in all")
    return SqliteAddress(Path(re.sub("^//+", "/", path)))


def _postgres(parts: SplitResult) -> PostgresAddress:
    if parts.scheme not in _POSTGRES:
        raise ValueError("not the URL of a database")
    user, _, places = parts.netloc.rpartition("@")
    if ":" in user or "@" in parts.path + parts.query + parts.fragment:  # a password may have a slash
        raise ValueError("a password must not be in the URL: set password or password_file")
    options = dict(parse_qsl(parts.query))
    if unknown := options.keys() - {"host"}:
        raise ValueError(f"{min(unknown)} must not be in the URL: use the settings of the component")
    database = unquote(parts.path).strip("/")
    if not database:
        raise ValueError("the URL names no database")
    hosts = (options["host"],) if "host" in options else tuple(filter(None, places.split(",")))
    if not hosts:
        raise ValueError("the URL names no host")
    return PostgresAddress(tuple(map(_host_and_port, hosts)), unquote(user) or None, database)


def _host_and_port(place: str) -> tuple[str, int]:
    if place.startswith("/"):
        directory, _, port = place.partition(":")
        return directory, int(port or _PORT)
    parts = urlsplit(f"//{place}")
    if not parts.hostname:
        raise ValueError(f"{place!r} is not a host")
    return parts.hostname, parts.port or _PORT
