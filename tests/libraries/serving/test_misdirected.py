"""A client that a server cannot understand is in the server's log, with its address and the setting, once a minute."""

import asyncio
import logging
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from otel_zernel.clock import SystemClock
from otel_zernel.errors import Retryable
from otel_zernel.testing import Downstream, FakeClock, make_context, until
from otel_zernel.types import Address
from otel_zernel_exporters.otlp import OtlpGrpcExporter
from otel_zernel_libraries.serving.misdirected import Misdirected, protocol_of
from otel_zernel_libraries.serving.serving import listen_all, serve
from tests.exporters.otlp.certificates import Authority
from tests.exporters.otlp.peers import metrics_batch
from tests.receivers.otlp import serving


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def tls(authority: Authority) -> dict[str, str]:
    """The settings of a server whose certificate is of the authority."""
    files = authority.issue("localhost")
    return {"cert_file": files.cert_file, "key_file": files.key_file}


@asynccontextmanager
async def receiving(**tls: Any) -> AsyncIterator[dict[str, int]]:
    """A receiver otlp; yields the ports of its protocols."""
    protocols = {name: {"endpoint": "127.0.0.1:0", **tls} for name in ("grpc", "http")}
    async with serving.receiving(Downstream(), protocols) as receiver:
        yield {name: place.port for name, place in receiver.addresses.items() if isinstance(place, Address)}


async def send_by_grpc(endpoint: str, **tls: Any) -> None:
    config = OtlpGrpcExporter.Config.model_validate({"endpoint": endpoint, "tls": tls, "timeout": "5s"})
    async with OtlpGrpcExporter(config, make_context("exporters", "otlp", clock=SystemClock())) as exporter:
        with pytest.raises(Retryable):
            await exporter.export(metrics_batch())


async def send_by_http(url: str, verify: ssl.SSLContext | bool = True, method: str = "POST") -> None:
    async with httpx.AsyncClient(verify=verify, trust_env=False) as client:
        try:
            await client.request(method, url, content=b"", headers={"content-type": "application/x-protobuf"})
        except httpx.TransportError:
            return


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


async def warning(caplog: pytest.LogCaptureFixture) -> str:
    await until(lambda: warnings(caplog))
    return warnings(caplog)[0]


async def test_http_to_the_grpc_port(caplog: pytest.LogCaptureFixture) -> None:
    async with receiving() as ports:
        for _ in range(5):
            await send_by_http(f"http://127.0.0.1:{ports['grpc']}/v1/metrics")
        assert await warning(caplog) == (
            "receivers::otlp::protocols::grpc::endpoint: 127.0.0.1 sends HTTP/1.1 to this gRPC port: "
            "send OTLP over HTTP to the HTTP port, usually 4318"
        )
        assert len(warnings(caplog)) == 1


async def test_grpc_to_the_http_port(caplog: pytest.LogCaptureFixture) -> None:
    async with receiving() as ports:
        await send_by_grpc(f"127.0.0.1:{ports['http']}", insecure=True)
        assert "127.0.0.1 speaks HTTP/2 or gRPC to this port of HTTP/1.1: send gRPC to" in await warning(caplog)


@pytest.mark.parametrize("protocol", ["grpc", "http"])
async def test_tls_to_a_port_without(protocol: str, caplog: pytest.LogCaptureFixture) -> None:
    async with receiving() as ports:
        await send_by_http(f"https://127.0.0.1:{ports[protocol]}/v1/metrics")
        assert (await warning(caplog)).startswith(
            f"receivers::otlp::protocols::{protocol}::endpoint: 127.0.0.1 speaks TLS to this port without TLS: "
        )


@pytest.mark.parametrize("protocol", ["grpc", "http"])
async def test_plaintext_to_a_port_with_tls(
    protocol: str, tls: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    async with receiving(tls=tls) as ports:
        await send_by_http(f"http://127.0.0.1:{ports[protocol]}/v1/metrics")
        assert "127.0.0.1 speaks plaintext to this port with TLS: let the client use https://" in await warning(caplog)


@pytest.mark.parametrize("protocol", ["grpc", "http"])
async def test_a_client_that_does_not_trust_the_server(
    protocol: str, tls: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:

    def connect(port: int) -> None:  # asyncio's clients close the connection without an alert
        with (
            socket.create_connection(("127.0.0.1", port)) as plain,
            pytest.raises(ssl.SSLError),
            ssl.create_default_context().wrap_socket(plain, server_hostname="localhost"),
        ):
            pass

    async with receiving(tls=tls) as ports:
        await asyncio.to_thread(connect, ports[protocol])
        assert "does not trust the certificate of this server: let the client set" in await warning(caplog)


async def test_https_without_http2_to_the_grpc_port(
    authority: Authority, tls: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    trusting = ssl.create_default_context(cafile=authority.ca_file)
    async with receiving(tls=tls) as ports:
        await send_by_http(f"https://localhost:{ports['grpc']}/v1/metrics", trusting)
        assert "speaks HTTPS without HTTP/2 to this gRPC port" in await warning(caplog)


async def test_a_client_without_a_certificate(
    authority: Authority, tls: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    trusting = ssl.create_default_context(cafile=authority.ca_file)
    trusting.maximum_version = ssl.TLSVersion.TLSv1_2
    async with receiving(tls={**tls, "client_ca_file": authority.ca_file}) as ports:
        await send_by_http(f"https://localhost:{ports['http']}/v1/metrics", trusting)
        assert "127.0.0.1 has no client certificate, which client_ca_file requires" in await warning(caplog)


@pytest.mark.parametrize(
    ("method", "path", "words"),
    [
        ("GET", "/metrics", "GET /metrics, which is answered with 405; Prometheus metrics are at the exporter"),
        ("POST", "/api/v1/write", "POST /api/v1/write, which is answered with 404; Prometheus remote write and"),
        ("POST", "/typo?token=secret", "POST /typo, which is answered with 404"),
    ],
)
async def test_a_wrong_path_of_the_receiver(
    method: str, path: str, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with receiving() as ports:
        await send_by_http(f"http://127.0.0.1:{ports['http']}{path}", method=method)
        text = await warning(caplog)
    assert text.startswith(f"receivers::otlp::protocols::http::endpoint: 127.0.0.1 asks for {words}")
    assert "secret" not in text


async def test_otlp_to_a_page_of_metrics(caplog: pytest.LogCaptureFixture) -> None:
    from otel_zernel_libraries.prometheus import metrics_app

    app = metrics_app(lambda _: b"")
    async with serve(app, Address("127.0.0.1", 0), "exporters::prometheus::endpoint") as address:
        await send_by_http(f"http://{address}/v1/metrics")
        assert await warning(caplog) == (
            "exporters::prometheus::endpoint: 127.0.0.1 asks for POST /v1/metrics, which is answered with 404;"
            " OTLP belongs to the receiver otlp, usually port 4318"
        )


async def test_a_check_that_only_connects_is_not_logged(tls: dict[str, str], caplog: pytest.LogCaptureFixture) -> None:
    async with receiving(tls=tls) as ports:
        for number, port in enumerate(ports.values(), 1):
            for _ in range(3):
                socket.create_connection(("127.0.0.1", port)).close()
            await send_by_http(f"http://127.0.0.1:{port}/v1/metrics")
            await until(lambda number=number: len(warnings(caplog)) >= number)  # type: ignore[misc]
    assert ["speaks plaintext" in warning for warning in warnings(caplog)] == [True] * 2


async def test_localhost_is_served_on_both_families() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})

    async with serve(app, Address("localhost", 0), "test") as address, httpx.AsyncClient(trust_env=False) as client:
        assert address.host == "127.0.0.1"
        for host in ("127.0.0.1", "[::1]"):
            assert (await client.get(f"http://{host}:{address.port}/")).status_code == 204


async def test_a_program_on_the_other_family_of_localhost_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as other:
        port = other.getsockname()[1]
        (listener,) = listen_all(Address("localhost", port), "test::endpoint")
        listener.close()
    assert warnings(caplog) == [
        f"test::endpoint: another program listens on [::1]:{port}; clients may reach it by localhost"
    ]


def test_protocols_are_known_by_their_first_bytes() -> None:
    firsts = {
        b"\x16\x03\x01\x02\x00": "tls",
        b"PRI * HTTP/2.0\r\n": "http2",
        b"GET / HTTP/1.1\r\n": "http1",
        b"\x00": None,
    }
    assert [protocol_of(first) for first in firsts] == list(firsts.values())


def test_a_flood_of_wrong_clients_is_a_line_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock()
    misdirected = Misdirected("x::endpoint", "grpc", clock)
    for number in range(1200):
        misdirected.mistook("tls", (f"10.0.0.{number % 250}", number))
        misdirected.asked("GET", f"/{number}", 404, ("10.0.0.1", number))
        clock.advance(0.1)
    assert len(warnings(caplog)) == 4
    assert sum("(600 times since the last line)" in text for text in warnings(caplog)) == 2
