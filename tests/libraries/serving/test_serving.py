"""A server listens on its address while its context is entered. Otherwise, the error gives the cause.

A server that is open to other machines says so.
"""

import logging
import socket
import stat
from pathlib import Path
from typing import Any

import httpx
import pytest

from otel_zernel.authentication import AuthConfig
from otel_zernel.errors import CannotStart
from otel_zernel.testing import make_context
from otel_zernel.types import Address
from otel_zernel_libraries.serving.access import is_local, joined_headers, missing_protection, warn_if_open
from otel_zernel_libraries.serving.serving import listen, listen_unix, serve
from otel_zernel_libraries.serving.tls_config import ServerTlsConfig


async def hello(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": scope["path"].encode()})


async def test_a_server_frees_its_port_at_exit() -> None:
    async with serve(hello, Address("localhost", 0), "a::b") as address:
        async with httpx.AsyncClient() as client:
            answer = await client.get(f"http://{address}/there")
        assert (answer.status_code, answer.text, address.host) == (200, "/there", "127.0.0.1")
    listen(address, "a::b").close()


async def test_an_occupied_port_is_an_error_with_the_setting_and_a_remedy() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = Address("localhost", taken.getsockname()[1])
        with pytest.raises(CannotStart) as failed:
            async with serve(hello, address, "exporters::prometheus::endpoint"):
                pass
    assert str(failed.value) == (
        f"exporters::prometheus::endpoint: cannot listen on {address}: "
        "another program has this port; stop it or choose another port"
    )


@pytest.mark.parametrize(
    ("host", "words"),
    [("192.0.2.1", "no such address"), ("no-such-host.invalid", "cannot resolve"), ("a..b", "cannot resolve")],
)
def test_an_address_of_another_machine_is_an_error(host: str, words: str) -> None:
    with pytest.raises(CannotStart, match=words):
        listen(Address(host, 0), "a::b")


def test_an_empty_host_means_every_interface() -> None:
    with listen(Address("", 0), "a::b") as listener:
        assert listener.getsockname()[0] == "0.0.0.0"


async def test_a_unix_socket_is_served_for_owner_and_group_and_removed_at_exit(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    listen_unix(path, "a::b").close()  # left behind by a program that was killed
    async with serve(hello, path, "a::b") as place:
        assert (place, stat.S_IMODE(path.stat().st_mode)) == (path, 0o660)
        transport = httpx.AsyncHTTPTransport(uds=str(path))
        async with httpx.AsyncClient(transport=transport) as client:
            assert (await client.get("http://anything/there")).text == "/there"
        with pytest.raises(CannotStart, match="the path exists; stop the program that uses it"):
            listen_unix(path, "a::b")
    assert not path.exists()


@pytest.mark.parametrize(
    ("name", "words"), [("missing/socket", "the directory does not exist"), ("x" * 200, "AF_UNIX path too long")]
)
def test_a_path_that_cannot_be_a_socket_is_an_error(name: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(CannotStart, match=words):
        listen_unix(tmp_path / name, "a::b")


def test_another_file_is_never_replaced_by_a_socket(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_text("precious")
    with pytest.raises(CannotStart, match="the path exists"):
        listen_unix(path, "a::b")
    assert path.read_text() == "precious"


ANY = Address("0.0.0.0", 4317)


@pytest.mark.parametrize(
    ("place", "tls", "auth", "missing"),
    [
        (ANY, False, False, "TLS and authentication"),
        (Address("", 4317), True, False, "authentication"),
        (Address("::", 4317), False, True, "TLS"),
        (ANY, True, True, None),
        (Address("localhost", 4317), False, False, None),
        (Address("127.0.0.2", 4317), False, False, None),
        (Address("::1", 4317), False, False, None),
        (Path("/run/socket"), False, False, None),
    ],
)
def test_an_open_server_is_warned_of(
    place: Address | Path, tls: bool, auth: bool, missing: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        certificate = ServerTlsConfig.model_construct(client_ca_file=None) if tls else None
        users = AuthConfig(authenticator="users") if auth else None
        warn_if_open(place, "receivers::otlp::endpoint", make_context().logger, certificate, users)
    advice = "set tls and auth, or listen on localhost"
    expected = f"receivers::otlp::endpoint: {place} accepts data from other machines without {missing}; {advice}"
    assert caplog.messages == ([expected] if missing else [])


def test_certificates_of_clients_are_authentication() -> None:
    assert missing_protection(ANY, ServerTlsConfig.model_construct(client_ca_file="ca.pem"), None) == ""


def test_a_name_counts_as_remote() -> None:
    assert not is_local("node.example")


def test_repeated_headers_are_joined() -> None:
    assert joined_headers([(b"a", b"1"), (b"b", b"\xff"), (b"a", b"2")]) == {"a": "1,2", "b": "\xff"}
