"""TLS of Kafka clients, against a server that checks the handshake."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from otel_zernel.errors import CannotStart, Retryable
from otel_zernel.testing import until
from tests.core.parts import batch_of
from tests.exporters.kafka.exporting import exporter_of, exporting
from tests.exporters.otlp.certificates import Authority


@dataclass
class TlsServer:
    """Accepts TLS connections, and notes their first bytes and the names in client certificates. Answers nothing."""

    brokers: list[str] = field(default_factory=list)
    first_bytes: list[bytes] = field(default_factory=list)
    clients: list[str] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        certificate: Any = writer.get_extra_info("peercert") or {}
        names = [value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]
        self.clients += names
        self.first_bytes.append(await reader.read(8))
        writer.close()


@asynccontextmanager
async def tls_server(context: ssl.SSLContext) -> AsyncIterator[TlsServer]:
    server = TlsServer()
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0, ssl=context)
    server.brokers = [f"127.0.0.1:{listener.sockets[0].getsockname()[1]}"]
    async with listener:
        yield server


async def test_a_client_with_a_certificate_speaks_kafka_within_tls(authority: Authority) -> None:
    client = authority.issue("client")
    tls = {"ca_file": authority.ca_file, "cert_file": client.cert_file, "key_file": client.key_file}
    context = authority.issue("127.0.0.1").server_context(authority.ca_file)
    async with tls_server(context) as server, exporting(server.brokers, tls=tls):
        await until(lambda: server.first_bytes and any(server.first_bytes))
    request = next(filter(None, server.first_bytes))
    assert int.from_bytes(request[4:6], "big") == 18, "the first request of Kafka's protocol is ApiVersions"
    assert "client" in server.clients


async def test_a_server_that_is_not_trusted_gets_nothing(authority: Authority, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = Authority(tmp_path / "other")
    context = authority.issue("127.0.0.1").server_context()
    options: dict[str, Any] = {"tls": {"ca_file": other.ca_file}, "timeout": "1s"}
    async with tls_server(context) as server, exporting(server.brokers, **options) as exporter:
        with pytest.raises(Retryable, match=r"TLS fails: check tls::ca_file|no broker can be reached"):
            await exporter.export(batch_of(1.0))
        assert not any(server.first_bytes)


async def test_a_missing_file_is_one_sentence_at_start(tmp_path: Path) -> None:
    exporter = exporter_of(["localhost:1"], tls={"ca_file": str(tmp_path / "missing.pem")})
    with pytest.raises(CannotStart, match=r"exporters::kafka::tls::ca_file: cannot read .*missing.pem"):
        await exporter.__aenter__()
