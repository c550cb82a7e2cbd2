"""A server that is open to other machines says so."""

import logging
from pathlib import Path

import pytest

from otel_zernel.authentication import AuthConfig
from otel_zernel.testing import make_context
from otel_zernel.types import Address
from otel_zernel_libraries.serving.access import is_local, joined_headers, missing_protection, warn_if_open
from otel_zernel_libraries.serving.tls_config import ServerTlsConfig

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
