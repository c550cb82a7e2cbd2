"""TLS of connections to PostgreSQL, in the modes of libpq."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from otel_zernel.errors import CannotStart, Retryable
from tests.exporters.otlp.certificates import Authority
from tests.libraries.store.given import config, gauges, writer
from tests.postgres import PASSWORD, PostgresServer, new_schema, postgres_server


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def server(authority: Authority) -> Iterator[PostgresServer]:
    """A server that accepts TLS only. Its certificate is for 127.0.0.1, not for `localhost`."""
    with postgres_server() as server:
        server.stop()
        files = authority.issue("db.example.com", "server")
        for name, source in (("server.crt", files.cert_file), ("server.key", files.key_file)):
            shutil.copy(source, server.data / name)
            shutil.chown(server.data / name, server.data.owner())
            (server.data / name).chmod(0o600)
        (server.data / "pg_hba.conf").write_text("local all all trust\nhostssl all all all scram-sha-256\n")
        server.start("ssl=on")
        yield server


async def stored(server: PostgresServer, tls: dict[str, Any], host: str = "localhost") -> int:
    url = server.tcp_url().replace("127.0.0.1", host)
    settings = config(url=url, password=PASSWORD, tls=tls, schema_name=new_schema(), connect_timeout="60s")
    store = writer(settings)
    try:
        await store.open()
        return (await store.write(gauges(5, times=1), 0)).stored
    finally:
        await store.close()


@pytest.mark.parametrize("mode", ["prefer", "require"])
async def test_a_mode_without_verification_accepts_any_certificate(server: PostgresServer, mode: str) -> None:
    assert await stored(server, {"mode": mode}) == 5


@pytest.mark.parametrize(("mode", "host"), [("verify-ca", "localhost"), ("verify-full", "127.0.0.1")])
async def test_a_certificate_of_the_authority_is_accepted(
    server: PostgresServer, authority: Authority, mode: str, host: str
) -> None:
    assert await stored(server, {"mode": mode, "ca_file": authority.ca_file}, host) == 5


async def test_a_certificate_of_another_name_is_refused(server: PostgresServer, authority: Authority) -> None:
    with pytest.raises(CannotStart, match=r"the certificate of localhost.* is not accepted: .*mismatch"):
        await stored(server, {"mode": "verify-full", "ca_file": authority.ca_file})


async def test_a_certificate_of_another_authority_is_refused(server: PostgresServer, tmp_path: Path) -> None:
    other = Authority(tmp_path)
    with pytest.raises(CannotStart, match=r"the certificate of localhost.* is not accepted"):
        await stored(server, {"mode": "verify-full", "ca_file": other.ca_file})


async def test_a_server_that_requires_tls_refuses_a_plain_connection(server: PostgresServer) -> None:
    with pytest.raises(CannotStart, match="the server does not accept the user from here"):
        await stored(server, {"mode": "disable"})


async def test_a_server_without_tls_is_refused_if_it_is_required(postgres: PostgresServer) -> None:
    with pytest.raises(Retryable, match=r"no connection to localhost.*refuses TLS \(SSL\)"):
        await stored(postgres, {"mode": "require"})


async def test_unusable_files_are_errors_at_the_start(postgres: PostgresServer, tmp_path: Path) -> None:
    empty = tmp_path / "empty.pem"
    empty.touch()
    with pytest.raises(CannotStart, match=r"exporters::sql::tls::ca_file: .*empty.pem cannot be used"):
        await stored(postgres, {"mode": "verify-full", "ca_file": str(empty)})
    pair = {"cert_file": str(empty), "key_file": str(empty)}
    with pytest.raises(CannotStart, match=r"exporters::sql::tls::cert_file: .* are not a PEM certificate and its key"):
        await stored(postgres, {"mode": "require", **pair})
