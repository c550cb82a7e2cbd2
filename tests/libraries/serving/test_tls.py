"""TLS of servers, with real connections."""

import asyncio
import gc
import select
import shutil
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import ValidationError

from otel_zernel.component import Context
from otel_zernel.errors import CannotStart
from otel_zernel.testing import make_context, until
from otel_zernel.types import Address
from otel_zernel_libraries.serving.limits import ServerLimits
from otel_zernel_libraries.serving.serving import serve
from otel_zernel_libraries.serving.tls import ServerTls
from otel_zernel_libraries.serving.tls_config import ServerTlsConfig
from tests.exporters.otlp.certificates import Authority, CertificateFiles

SETTING = "receivers::test::tls"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def server(authority: Authority) -> CertificateFiles:
    return authority.issue("localhost")


def text(file: str) -> str:
    return Path(file).read_text()


def write(file: str | Path, content: str) -> None:
    Path(file).write_text(content)


def config(files: CertificateFiles, **more: Any) -> ServerTlsConfig:
    return ServerTlsConfig(cert_file=files.cert_file, key_file=files.key_file, **more)


async def hello(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": scope["scheme"].encode()})


@asynccontextmanager
async def served(settings: ServerTlsConfig, context: Context | None = None) -> AsyncIterator[tuple[Address, ServerTls]]:
    async with (
        ServerTls(settings, SETTING, context or make_context()) as tls,
        serve(hello, Address("localhost", 0), "a::b", tls=tls.context) as address,
    ):
        yield address, tls


def client_context(authority: Authority, client: CertificateFiles | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=authority.ca_file)
    if client:
        context.load_cert_chain(client.cert_file, client.key_file)
    return context


async def get(address: Address, context: ssl.SSLContext) -> str:
    async with httpx.AsyncClient(verify=context) as client:
        return (await client.get(f"https://localhost:{address.port}/")).text


async def serial_of(address: Address, context: ssl.SSLContext) -> str:
    """The serial number of the server's certificate."""
    _, writer = await asyncio.open_connection("localhost", address.port, ssl=context)
    serial: str = writer.get_extra_info("peercert")["serialNumber"]
    writer.close()
    await writer.wait_closed()
    return serial


async def test_https_is_served_from_files_and_from_texts(authority: Authority, server: CertificateFiles) -> None:
    texts = ServerTlsConfig.model_validate({"cert_pem": text(server.cert_file), "key_pem": text(server.key_file)})
    for settings in (config(server), texts):
        async with served(settings) as (address, _tls):
            assert await get(address, client_context(authority)) == "https"
    assert "PRIVATE" not in repr(texts)


async def test_a_client_needs_a_certificate_of_the_configured_authority(
    authority: Authority, server: CertificateFiles, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    stranger = Authority(tmp_path / "other").issue("client")
    settings = config(server, client_ca_file=authority.ca_file)
    async with served(settings) as (address, _tls):
        assert await get(address, client_context(authority, authority.issue("client"))) == "https"
        for client in (None, stranger):
            with pytest.raises(httpx.TransportError):
                await get(address, client_context(authority, client))


async def test_old_versions_of_tls_are_refused(authority: Authority, server: CertificateFiles) -> None:
    async with served(config(server, min_version=1.3)) as (address, _tls):
        old = client_context(authority)
        old.maximum_version = ssl.TLSVersion.TLSv1_2
        with pytest.raises(httpx.TransportError):
            await get(address, old)
        assert await get(address, client_context(authority)) == "https"


async def test_the_configured_cipher_and_curve_are_used(authority: Authority, server: CertificateFiles) -> None:
    suite = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"
    settings = config(server, max_version="1.2", cipher_suites=[suite], curve_preferences=["P384"])
    async with served(settings) as (address, _tls):
        _, writer = await asyncio.open_connection("localhost", address.port, ssl=client_context(authority))
        assert writer.get_extra_info("cipher")[:2] == ("ECDHE-ECDSA-AES256-GCM-SHA384", "TLSv1.2")
        writer.close()
        await writer.wait_closed()


async def test_plaintext_on_a_tls_port_is_closed_and_the_server_goes_on(
    authority: Authority, server: CertificateFiles
) -> None:
    async with served(config(server)) as (address, _tls):
        reader, writer = await asyncio.open_connection(address.host, address.port)
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        assert b"HTTP" not in await reader.read()
        writer.close()
        await writer.wait_closed()
        assert await get(address, client_context(authority)) == "https"


async def test_an_early_answer_reaches_a_client_that_still_sends(
    authority: Authority, server: CertificateFiles
) -> None:
    async with served(config(server)) as (address, _), httpx.AsyncClient(verify=client_context(authority)) as client:
        answer = await client.post(f"https://localhost:{address.port}/", content=b"x" * 10_000_000)
        assert answer.text == "https"


async def test_a_changed_certificate_is_used_and_a_bad_one_is_not(
    authority: Authority, server: CertificateFiles, caplog: pytest.LogCaptureFixture
) -> None:
    """The OpenTelemetry Collector fails handshakes with a bad new certificate. Here, the old one stays in use."""
    context, trust = make_context(), client_context(authority)
    async with served(config(server, reload_interval="1s"), context) as (address, _tls):
        first = await serial_of(address, trust)
        write(server.cert_file, "garbage")
        await until(lambda: context.health.problems)
        assert "a changed file is unusable" in context.health.problems[SETTING]
        assert "the old content stays in use" in caplog.text
        assert await serial_of(address, trust) == first
        authority.issue("localhost")
        await until(lambda: not context.health.problems)
        assert await serial_of(address, trust) != first


async def test_a_changed_client_authority_replaces_the_old_one(
    authority: Authority, server: CertificateFiles, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    other = Authority(tmp_path / "other")
    clients = tmp_path / "clients.pem"
    shutil.copy(authority.ca_file, clients)
    settings = config(server, client_ca_file=str(clients), client_ca_file_reload=True)
    old, new = (client_context(authority, one.issue("client")) for one in (authority, other))
    context = make_context()
    async with served(settings, context) as (address, tls):
        write(clients, "garbage")
        await until(lambda: context.health.problems)
        assert await get(address, old) == "https"
        before = tls.context()
        shutil.copy(other.ca_file, clients)
        await until(lambda: tls.context() is not before)
        assert await get(address, new) == "https"
        with pytest.raises(httpx.TransportError):
            await get(address, old)


async def test_a_file_that_cannot_be_used_at_the_start_is_named(server: CertificateFiles, tmp_path: Path) -> None:
    other = tmp_path / "other.pem"
    write(other, "no certificate")
    cases = [
        ({"cert_file": "/nowhere.pem"}, "tls::cert_file: cannot read /nowhere.pem: No such file"),
        ({"key_file": "/nowhere.pem"}, "tls::key_file: cannot read /nowhere.pem"),
        ({"cert_file": str(other)}, "are not a PEM certificate and its key"),
        ({"client_ca_file": str(other)}, "tls::client_ca_file: .* contains no PEM certificate"),
    ]
    for change, words in cases:
        fields = {"cert_file": server.cert_file, "key_file": server.key_file, **change}
        with pytest.raises(CannotStart, match=words):
            async with ServerTls(ServerTlsConfig.model_validate(fields), SETTING, make_context()):
                pass


# Configuration


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"cert_file": None}, "set cert_file or cert_pem"),
        ({"key_file": None}, "set key_file or key_pem"),
        ({"cert_pem": "x"}, "cert_file and cert_pem exclude each other"),
        ({"min_version": "1.0"}, "TLS 1.0 is not secure"),
        ({"min_version": "1.3", "max_version": "1.2"}, "max_version 1.2 is older than min_version 1.3"),
        ({"cipher_suites": ["TLS_RSA_WITH_RC4_128_SHA"]}, "not a secure cipher suite"),
        ({"curve_preferences": ["P256", "P384"]}, "one curve only"),
        ({"curve_preferences": ["P1"]}, "valid curves: P256"),
        ({"client_ca_file_reload": True}, "needs client_ca_file"),
        ({"tpm": {}}, "Extra inputs"),
    ],
)
def test_a_setting_that_cannot_be_honoured_is_a_mistake(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        ServerTlsConfig.model_validate({"cert_file": "a", "key_file": "b", **change})


async def test_unfinished_handshakes_leave_a_place_for_a_client(authority: Authority, server: CertificateFiles) -> None:
    limits = ServerLimits(connections=5)
    async with (
        ServerTls(config(server), SETTING, make_context()) as tls,
        serve(hello, Address("localhost", 0), "a::b", tls=tls.context, limits=limits) as address,
    ):
        silent = [await asyncio.open_connection(address.host, address.port) for _ in range(30)]
        assert await get(address, client_context(authority)) == "https"
        await until(lambda: sum(reader.at_eof() for reader, _ in silent) >= 25)
        for _, writer in silent:
            writer.close()


async def test_a_burst_of_connections_closes_all_that_exceed_the_limit(
    authority: Authority, server: CertificateFiles
) -> None:
    """The server accepts a burst in one step of the event loop, so that some tasks are cancelled before they run."""
    limits = ServerLimits(connections=5)
    async with (
        ServerTls(config(server), SETTING, make_context()) as tls,
        serve(hello, Address("localhost", 0), "a::b", tls=tls.context, limits=limits) as address,
    ):
        assert await get(address, client_context(authority)) == "https"
        with ExitStack() as stack:
            burst = [stack.enter_context(socket.create_connection((address.host, address.port))) for _ in range(30)]
            await until(lambda: len(select.select(burst, [], [], 0)[0]) == 25)
            assert await get(address, client_context(authority)) == "https"
    gc.collect()  # an unclosed socket is a warning, which fails the test
