"""A wrong port, TLS on one side only, a wrong certificate, a proxy or a web page: the message has cause and setting."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest

from otel_zernel.clock import SystemClock
from otel_zernel.errors import Permanent, Retryable
from otel_zernel.testing import make_context
from otel_zernel_libraries.clients.causes import Failures, explained, without_noise
from tests.exporters.otlp.certificates import Authority, CertificateFiles
from tests.exporters.otlp.exporting import both, exporter_of
from tests.exporters.otlp.peers import GrpcSink, HttpSink, metrics_batch

INSECURE = {"insecure": True}


async def failure(transport: str, endpoint: str, **config: Any) -> str:
    """The message of a failed export."""
    own = make_context("exporters", "otlp", clock=SystemClock())
    async with exporter_of(transport, endpoint, own, timeout="10s", **config) as exporter, asyncio.timeout(60):
        with pytest.raises((Retryable, Permanent)) as caught:
            await exporter.export(metrics_batch())
    return str(caught.value)


@asynccontextmanager
async def web(
    status: int, body: str, headers: dict[str, str], certificate: CertificateFiles | None = None
) -> AsyncIterator[int]:
    """A web server with one answer to every request; yields the port."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("content-length", 0)))
            self.send_response(status)
            for name, value in {**headers, "content-length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_: object) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        if certificate:
            server.socket = certificate.server_context().wrap_socket(server.socket, server_side=True)
        Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()  # seconds that `shutdown` may take
        yield server.server_port
        server.shutdown()


def not_found(certificate: CertificateFiles | None = None) -> Any:
    """The answer of Prometheus, and of most servers in Go."""
    return web(404, "404 page not found\n", {"content-type": "text/plain"}, certificate)


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_http_to_a_grpc_port(scheme: str, authority: Authority) -> None:
    credentials = authority.issue("localhost").server_credentials() if scheme == "https" else None
    async with GrpcSink().serve(credentials) as port:
        message = await failure("http", f"{scheme}://localhost:{port}", tls={"ca_file": authority.ca_file})
    assert "may be a gRPC server; use its HTTP port, usually 4318, or the exporter otlp_grpc" in message


async def test_grpc_to_an_http_port() -> None:
    async with HttpSink().serve() as url:
        message = await failure("grpc", url)
    assert "the server speaks HTTP/1.1, not gRPC; use its gRPC port, usually 4317, or the exporter otlp_http" in message


async def test_grpc_with_tls_to_an_https_port(authority: Authority) -> None:
    async with not_found(authority.issue("localhost")) as port:
        message = await failure("grpc", f"localhost:{port}", tls={"ca_file": authority.ca_file})
    assert "the server speaks TLS, but not gRPC; use its gRPC port" in message


@pytest.mark.parametrize(
    ("transport", "server", "setting"),
    [
        ("http", HttpSink, "write http:// in the endpoint"),
        ("grpc", HttpSink, "set tls::insecure: true"),
        ("grpc", GrpcSink, "set tls::insecure: true"),
    ],
)
async def test_tls_to_a_port_without(transport: str, server: type[HttpSink | GrpcSink], setting: str) -> None:
    async with server().serve() as place:
        port = str(place).rpartition(":")[2]
        message = await failure(transport, f"https://localhost:{port}")
    assert f"the server does not speak TLS on this port; {setting}" in message


async def test_plaintext_to_a_port_with_tls(authority: Authority) -> None:
    certificate = authority.issue("localhost")
    async with not_found(certificate) as port:
        assert "if it expects TLS, write https:// in the endpoint" in await failure("http", f"http://127.0.0.1:{port}")
    async with GrpcSink().serve(certificate.server_credentials()) as port:
        message = await failure("grpc", f"localhost:{port}", tls=INSECURE)
    assert "if it expects TLS, remove tls::insecure, or write https:// before the host" in message


CERTIFICATES = {
    "unknown authority": ("is signed by an authority that is not trusted; set tls::ca_file", "localhost", False),
    "other name": ("is for another name; write a name of the certificate in the endpoint, or in", "example.org", False),
    "expired": ("has expired or is not valid yet; renew it, or correct the clock", "localhost", True),
}


@pytest.mark.parametrize("kind", CERTIFICATES)
@both
async def test_a_wrong_certificate(transport: str, kind: str, authority: Authority) -> None:
    words, name, expired = CERTIFICATES[kind]
    certificate = authority.issue(name, expired=expired)
    tls = {} if kind == "unknown authority" else {"ca_file": authority.ca_file}
    async with AsyncExitStack() as stack:
        if transport == "http":
            port = await stack.enter_async_context(not_found(certificate))
        else:
            port = await stack.enter_async_context(GrpcSink().serve(certificate.server_credentials()))
        message = await failure(transport, f"https://localhost:{port}", tls=tls)
    assert f"the server's certificate {words}" in message


async def test_a_server_that_requires_a_client_certificate(authority: Authority) -> None:
    certificate = authority.issue("localhost")
    async with GrpcSink().serve(certificate.server_credentials(authority.ca_file)) as port:
        message = await failure("http", f"https://localhost:{port}", tls={"ca_file": authority.ca_file})
    assert "tls::cert_file" in message or "may be a gRPC server" in message


@both
async def test_a_port_on_which_nothing_listens(transport: str, unused_tcp_port: int) -> None:
    message = await failure(transport, f"http://127.0.0.1:{unused_tcp_port}")
    assert "nothing listens on this port; start the server, or correct the endpoint" in message
    assert "Connection refused" in message


@both
async def test_an_unknown_host(transport: str) -> None:
    message = await failure(transport, "http://no-such-host.invalid:4318")
    assert "the name of the host is unknown; correct the endpoint, or the DNS of this machine" in message


@both
async def test_a_proxy_that_does_not_listen(
    transport: str, unused_tcp_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY"):
        monkeypatch.setenv(name, f"http://user:secret@127.0.0.1:{unused_tcp_port}")
    message = await failure(transport, "http://gateway.example:4318")
    assert "the proxy cannot be reached" in message
    assert "(HTTP_PROXY): correct that variable, or add the host to NO_PROXY" in message
    assert "secret" not in message


@both
async def test_a_proxy_that_refuses(transport: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with web(403, "<html><title>Blocked</title></html>", {"content-type": "text/html"}) as port:
        for name in ("http_proxy", "HTTP_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{port}")
        message = await failure(transport, "http://gateway.example:4318")
    assert f"goes through the proxy http://127.0.0.1:{port}" in message
    assert ('the web page "Blocked"' if transport == "http" else "the proxy does not let gRPC through") in message


@both
async def test_a_host_in_no_proxy_is_not_said_to_use_one(
    transport: str, unused_tcp_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.setenv(name, "127.0.0.1")
    message = await failure(transport, f"http://127.0.0.1:{unused_tcp_port}")
    assert "nothing listens on this port" in message
    assert "proxy" not in message


@pytest.mark.parametrize("status", [404, 405])
@pytest.mark.parametrize(
    ("content_type", "body"),
    [("text/plain", "404 page not found\n"), ("application/json", '{"message": "Not found"}')],
)
async def test_prometheus_or_another_web_server_answers(status: int, content_type: str, body: str) -> None:
    async with web(status, body, {"content-type": content_type}) as port:
        message = await failure("http", f"http://127.0.0.1:{port}")
    assert f"{status} " in message
    assert "http://host:9090/api/v1/otlp for Prometheus" in message


async def test_a_web_page_is_shown_by_its_title() -> None:
    page = "<!DOCTYPE html><html><head><title>404 Not Found &amp; gone</title></head><body>nginx</body></html>"
    async with web(404, page, {"content-type": "text/html"}) as port:
        message = await failure("http", f"http://127.0.0.1:{port}")
    assert '404 Not Found: the web page "404 Not Found & gone"; this path does not accept OTLP' in message


async def test_a_redirect_to_a_login_says_so() -> None:
    async with web(302, "", {"location": "/login?next=secret"}) as port:
        message = await failure("http", f"http://127.0.0.1:{port}")
    assert "that is a login for people: set the endpoint to the OTLP address behind it" in message
    assert "secret" not in message


async def test_localhost_tries_both_families_and_keeps_to_the_one_that_works() -> None:
    sink = GrpcSink()
    async with sink.serve(host="[::1]") as port:
        own = make_context("exporters", "otlp", clock=SystemClock())
        async with exporter_of("grpc", f"http://localhost:{port}", own) as exporter:
            for _ in range(3):
                await exporter.export(metrics_batch())
    assert len(sink.requests) == 3


async def test_the_family_with_a_server_decides_the_message_of_localhost() -> None:
    async with not_found() as port:  # only on 127.0.0.1
        message = await failure("grpc", f"localhost:{port}", tls=INSECURE)
    assert "127.0.0.1: the server speaks HTTP/1.1, not gRPC" in message
    assert "refused" not in message


def test_addresses_with_different_failures_are_both_named() -> None:
    failures = Failures()
    failures.add("10.0.0.1", "Connection refused", OSError())
    failures.add("10.0.0.2", "certificate has expired", OSError())
    failures.add("10.0.0.3", "Connection reset by peer", OSError())
    text = failures.explained("http", plaintext=False, proxied=False)
    assert text.startswith("10.0.0.2: the server's certificate has expired")
    assert text.endswith("; 10.0.0.3: Connection reset by peer")


def test_a_host_that_grpc_cannot_resolve_is_an_unknown_name() -> None:
    details = "errors resolving nowhere:1: [field:hostname lookup error:address lookup failed: Domain name not found]"
    assert explained(details, "heartbeat", plaintext=True).startswith(
        "the name of the host is unknown; correct the endpoi"
    )


def test_the_details_of_grpc_are_shown_without_what_is_the_same_for_every_failure() -> None:
    details = (
        "failed to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:1: "
        "Failed to connect to remote host: Connection refused"
    )
    assert without_noise(details) == "Connection refused"
