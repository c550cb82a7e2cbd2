"""TLS of both exporters: trust, missing files and changed files."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization

from otel_zernel.errors import CannotStart, Retryable
from otel_zernel.testing import FakeClock, make_context
from tests.exporters.otlp.certificates import Authority, CertificateFiles
from tests.exporters.otlp.exporting import both, exporter_of, exporting
from tests.exporters.otlp.peers import GrpcSink, metrics_batch


class SecureServer:
    """A TLS server for both exporters that records the names in its clients' certificates."""

    def __init__(self, transport: str, identity: CertificateFiles, client_ca: str | None = None) -> None:
        self.transport = transport
        self.clients: list[str] = []
        self.version: ssl.TLSVersion | None = None
        """The only version that it accepts."""
        self.keeps_open = False
        """Whether its connections over HTTP serve more than one request."""
        self._identity = identity
        self._client_ca = client_ca

    def serve(self) -> AbstractAsyncContextManager[str]:
        """Yields the endpoint."""
        return self._serve_grpc() if self.transport == "grpc" else self._serve_http()

    @asynccontextmanager
    async def _serve_grpc(self) -> AsyncIterator[str]:
        sink = GrpcSink()
        async with sink.serve(self._identity.server_credentials(self._client_ca)) as port:
            yield f"localhost:{port}"
        self.clients += [peer.get("x509_common_name", [b""])[0].decode() for peer in sink.peers]

    @asynccontextmanager
    async def _serve_http(self) -> AsyncIterator[str]:
        context = self._identity.server_context(self._client_ca)
        if self.version:
            context.minimum_version = context.maximum_version = self.version
        async with await asyncio.start_server(self._answer, "localhost", 0, ssl=context) as server:
            yield f"https://localhost:{server.sockets[0].getsockname()[1]}"

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        await reader.readexactly(int(length.partition(b":")[2]))
        subject = (writer.get_extra_info("peercert") or {}).get("subject", ())
        self.clients.append(next((value for ((name, value),) in subject if name == "commonName"), ""))
        if self.keeps_open:
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
            with suppress(asyncio.IncompleteReadError, ConnectionError):
                await self._answer(reader, writer)
            return
        writer.write(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
        await writer.drain()
        writer.close()


async def send(server: SecureServer, **tls: Any) -> None:
    async with server.serve() as endpoint, exporter_of(server.transport, endpoint, tls=tls) as exporter:
        await exporter.export(metrics_batch())


@both
@pytest.mark.parametrize("system", [False, True])
async def test_a_server_with_a_trusted_certificate_is_accepted(
    transport: str, system: bool, authority: Authority
) -> None:
    server = SecureServer(transport, authority.issue("localhost"))
    await send(server, ca_file=authority.ca_file, include_system_ca_certs_pool=system)
    assert server.clients == [""]


@both
async def test_a_server_with_an_untrusted_certificate_is_refused(transport: str, authority: Authority) -> None:
    server = SecureServer(transport, authority.issue("localhost"))
    with pytest.raises(Retryable, match=r"(?i)certificate.verify.failed"):
        await send(server)
    assert server.clients == []


@both
@pytest.mark.parametrize("form", ["file", "pem"])
async def test_mutual_tls_shows_the_clients_certificate(transport: str, form: str, authority: Authority) -> None:
    client = authority.issue("trainer-7")
    server = SecureServer(transport, authority.issue("localhost"), authority.ca_file)
    files = {"ca": authority.ca_file, "cert": client.cert_file, "key": client.key_file}
    await send(server, **{f"{key}_{form}": file if form == "file" else text_of(file) for key, file in files.items()})
    assert server.clients == ["trainer-7"]


@both
async def test_without_a_certificate_mutual_tls_fails(transport: str, authority: Authority) -> None:
    server = SecureServer(transport, authority.issue("localhost"), authority.ca_file)
    with pytest.raises(Retryable):
        await send(server, ca_file=authority.ca_file)
    assert server.clients == []


@both
async def test_a_certificate_of_another_name_needs_an_override(transport: str, authority: Authority) -> None:
    server = SecureServer(transport, authority.issue("otlp.example"))
    with pytest.raises(Retryable):
        await send(server, ca_file=authority.ca_file)
    await send(server, ca_file=authority.ca_file, server_name_override="otlp.example")
    assert server.clients == [""]


async def test_http_can_skip_verification(authority: Authority) -> None:
    server = SecureServer("http", authority.issue("otlp.example"))
    await send(server, insecure_skip_verify=True)
    assert server.clients == [""]


@both
@pytest.mark.parametrize("key", ["ca_file", "cert_file", "key_file"])
async def test_a_missing_file_is_named(transport: str, key: str, authority: Authority) -> None:
    client = authority.issue("client")
    tls = {"ca_file": authority.ca_file, "cert_file": client.cert_file, "key_file": client.key_file}
    exporter = exporter_of(transport, "https://localhost:1", tls={**tls, key: "/nowhere.pem"})
    sentence = f"exporters::otlp_{transport}::tls::{key}: cannot read /nowhere.pem: No such file"
    with pytest.raises(CannotStart, match=sentence):
        await exporter.__aenter__()


def cut_short(file: str) -> None:
    Path(file).write_bytes(Path(file).read_bytes()[:100])


def encrypt(key_file: str) -> None:
    key = serialization.load_pem_private_key(Path(key_file).read_bytes(), None)
    secret = serialization.BestAvailableEncryption(b"secret")
    Path(key_file).write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, secret))


@both
async def test_invalid_files_are_named(transport: str, authority: Authority, tmp_path: Path) -> None:
    (tmp_path / "junk.pem").write_text("junk")
    client, other, locked = authority.issue("client"), authority.issue("other"), authority.issue("locked")
    encrypt(locked.key_file)
    for tls, named in [
        ({"ca_file": str(tmp_path / "junk.pem")}, "junk.pem"),
        ({"cert_file": str(tmp_path / "junk.pem"), "key_file": client.key_file}, "junk.pem"),
        ({"cert_file": client.cert_file, "key_file": other.key_file}, "other.key"),
        ({"cert_file": locked.cert_file, "key_file": locked.key_file}, "locked.key"),
    ]:
        with pytest.raises(CannotStart, match=f"exporters::otlp_{transport}::tls::c.*{named}"):
            await exporter_of(transport, "https://localhost:1", tls=tls).__aenter__()


async def test_plaintext_grpc_needs_no_files() -> None:
    sink = GrpcSink()
    async with exporting(sink, tls={"ca_file": "/nowhere.pem"}) as exporter:
        await exporter.export(metrics_batch())
    assert len(sink.requests) == 1


@asynccontextmanager
async def reloading(
    transport: str, authority: Authority
) -> AsyncIterator[tuple[SecureServer, Any, FakeClock, CertificateFiles]]:
    """A server that knows its clients, and an exporter with the certificate "first", which it reads each minute."""
    client = authority.issue("first", "client")
    tls = {"ca_file": authority.ca_file, "cert_file": client.cert_file, "key_file": client.key_file}
    server = SecureServer(transport, authority.issue("localhost"), authority.ca_file)
    async with reading_each_minute(server, tls) as (exporter, clock):
        yield server, exporter, clock, client


@asynccontextmanager
async def reading_each_minute(server: SecureServer, tls: dict[str, Any]) -> AsyncIterator[tuple[Any, FakeClock]]:
    clock = FakeClock()
    own = make_context("exporters", f"otlp_{server.transport}", clock=clock)
    tls = {**tls, "reload_interval": "1m"}
    async with server.serve() as endpoint, exporter_of(server.transport, endpoint, own, tls=tls) as exporter:
        yield exporter, clock


@both
async def test_a_renewed_certificate_is_used_after_the_interval(transport: str, authority: Authority) -> None:
    async with reloading(transport, authority) as (server, exporter, clock, _):
        authority.issue("second", "client")
        await exporter.export(metrics_batch())
        clock.advance(61)
        await exporter.export(metrics_batch())
        clock.advance(61)
        await exporter.export(metrics_batch())
    assert server.clients == ["first", "second", "second"]


@both
async def test_an_incomplete_certificate_leaves_the_old_one_in_use(
    transport: str, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    async with reloading(transport, authority) as (server, exporter, clock, client):
        cut_short(client.cert_file)
        clock.advance(61)
        await exporter.export(metrics_batch())
    assert server.clients == ["first"]
    assert "The changed TLS files are unusable, the old ones stay in use" in caplog.text


@both
async def test_an_authority_that_was_removed_from_the_file_is_trusted_no_more(
    transport: str, authority: Authority, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    other, trusted = Authority(tmp_path / "other"), tmp_path / "trusted.pem"
    trusted.write_text(text_of(authority.ca_file))
    server = SecureServer(transport, authority.issue("localhost"))
    server.keeps_open = True
    async with reading_each_minute(server, {"ca_file": str(trusted)}) as (exporter, clock):
        await exporter.export(metrics_batch())
        trusted.write_text(text_of(other.ca_file))
        clock.advance(61)
        with pytest.raises(Retryable, match=r"(?i)certificate"):
            await exporter.export(metrics_batch())
        trusted.write_text(text_of(other.ca_file) + text_of(authority.ca_file))
        clock.advance(61)
        await exporter.export(metrics_batch())


def text_of(file: str) -> str:
    return Path(file).read_text()


@both
async def test_an_invalid_certificate_in_the_configuration_is_named_and_not_printed(
    transport: str, authority: Authority
) -> None:
    client = authority.issue("client")
    with pytest.raises(CannotStart, match=f"exporters::otlp_{transport}::tls::ca_pem: ca_pem contains no PEM"):
        await exporter_of(transport, "https://localhost:1", tls={"ca_pem": "junk"}).__aenter__()
    tls = {"cert_pem": text_of(client.cert_file), "key_pem": "geheim"}
    with pytest.raises(CannotStart, match="tls::cert_pem: cert_pem and key_pem are not a PEM certificate") as caught:
        await exporter_of(transport, "https://localhost:1", tls=tls).__aenter__()
    assert "geheim" not in str(caught.value)


@pytest.mark.parametrize("limits", [{"min_version": "1.3"}, {"max_version": "1.2"}])
async def test_http_uses_the_configured_tls_versions(limits: dict[str, str], authority: Authority) -> None:
    identity = authority.issue("localhost")
    for version, accepted in ((ssl.TLSVersion.TLSv1_2, "max_version"), (ssl.TLSVersion.TLSv1_3, "min_version")):
        server = SecureServer("http", identity)
        server.version = version
        if accepted in limits:
            await send(server, ca_file=authority.ca_file, **limits)
        else:
            with pytest.raises(Retryable):
                await send(server, ca_file=authority.ca_file, **limits)


@both
async def test_an_expired_certificate_keeps_the_batch(transport: str, authority: Authority) -> None:
    server = SecureServer(transport, authority.issue("localhost", expired=True))
    with pytest.raises(Retryable, match=r"(?i)certificate.*(has expired|verify failed)"):
        await send(server, ca_file=authority.ca_file)
    assert server.clients == []
