"""Both exporters send the credentials of an authentication extension."""

from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import Response

from otel_zernel.authentication import ClientAuthenticator
from otel_zernel.clock import SystemClock
from otel_zernel.component import ComponentConfig, Extension
from otel_zernel.errors import CannotStart, Correctable, Retryable
from otel_zernel.testing import make_context, until
from tests.exporters.otlp.exporting import answering, answering_grpc, both, exporter_of, exporting, failing
from tests.exporters.otlp.peers import GrpcSink, HttpSink, metrics_batch


class Token(ClientAuthenticator):
    """An extension whose token the test changes."""

    def __init__(self, value: str | Exception = "Bearer one") -> None:
        super().__init__(ComponentConfig(), make_context("extensions", "token"))
        self.value = value

    def headers(self) -> Mapping[str, str]:
        if isinstance(self.value, Exception):
            raise self.value
        return {"authorization": self.value} if self.value else {}


class ForServers(Token):
    """An extension that is configured for receivers."""

    @property
    def cannot_add(self) -> str:
        return "set client_auth"


def sink_of(transport: str) -> GrpcSink | HttpSink:
    return HttpSink() if transport == "http" else GrpcSink()


def refusing(transport: str) -> GrpcSink | HttpSink:
    """A server that refuses the credentials of the first request."""
    if transport == "http":
        return answering(Response("expired", 401, media_type="text/plain"))
    return answering_grpc(failing("UNAUTHENTICATED", words="expired"))


def authorizations(sink: GrpcSink | HttpSink) -> list[object]:
    received = sink.metadata if isinstance(sink, GrpcSink) else [posted.headers for posted in sink.requests]
    return [headers["authorization"] for headers in received]


def with_extension(extension: Extension | None) -> dict[str, Any]:
    """The context and the option of an exporter that asks this extension."""
    own = make_context("exporters", "otlp", extensions={"token": extension} if extension else {})
    return {"own": own, "auth": {"authenticator": "token"}}


@both
async def test_the_token_is_asked_for_each_request_and_replaces_a_configured_header(transport: str) -> None:
    sink, token = sink_of(transport), Token()
    configured = {"Authorization": "Bearer configured"}
    async with exporting(sink, **with_extension(token), headers=configured) as exporter:
        await exporter.export(metrics_batch())
        token.value = "Bearer two"
        await exporter.export(metrics_batch())
    assert authorizations(sink) == ["Bearer one", "Bearer two"]


@both
async def test_refused_credentials_keep_the_batch_and_name_the_extension(transport: str) -> None:
    async with exporting(refusing(transport), **with_extension(Token("Bearer geheim"))) as exporter:
        with pytest.raises(
            Correctable, match=r"expired \(the server refused the credentials of extension token\)"
        ) as seen:
            await exporter.export(metrics_batch())
    assert "geheim" not in str(seen.value)


@both
async def test_missing_credentials_keep_the_batch_and_have_advice(transport: str) -> None:
    async with exporting(refusing(transport)) as exporter:
        with pytest.raises(Correctable, match=r"expired \(if the server requires credentials, set auth::authenticator"):
            await exporter.export(metrics_batch())


@both
@pytest.mark.parametrize("value", [FileNotFoundError("no token file"), "Bearer geheim\n", "Bearer g\u00e9heim"])
async def test_unusable_credentials_keep_the_batch_and_are_not_printed(transport: str, value: str | Exception) -> None:
    sink = sink_of(transport)
    async with exporting(sink, **with_extension(Token(value))) as exporter:
        with pytest.raises(Retryable, match="extension token") as seen:
            await exporter.export(metrics_batch())
    assert "heim" not in str(seen.value)
    assert authorizations(sink) == []


@both
async def test_an_extension_that_is_not_enabled_or_no_authenticator_stops_the_start(transport: str) -> None:
    no_authenticator = Extension(ComponentConfig(), make_context("extensions", "token"))
    for extension, message in (
        (None, "extension token is not enabled; add it to service::extensions"),
        (no_authenticator, "auth::authenticator: extension token cannot add credentials: "),
        (ForServers(), "auth::authenticator: extension token cannot add credentials: "),
    ):
        with pytest.raises(CannotStart, match=message):
            await exporter_of(transport, "http://localhost:1", **with_extension(extension)).__aenter__()


@both
async def test_a_token_that_changes_in_its_file_is_sent_from_then_on(transport: str, tmp_path: Path) -> None:
    bearer = pytest.importorskip("otel_zernel_extensions.bearertokenauth").BearerTokenAuthExtension
    sink, file = sink_of(transport), tmp_path / "token"
    file.write_text("one")
    config = bearer.Config.model_validate({"filename": str(file)})
    async with (
        bearer(config, make_context("extensions", "token", clock=SystemClock())) as extension,
        exporting(sink, **with_extension(extension)) as exporter,
    ):
        await exporter.export(metrics_batch())
        file.write_text("two")
        await until(lambda: "two" in extension.headers()["authorization"])
        await exporter.export(metrics_batch())
    assert authorizations(sink) == ["Bearer one", "Bearer two"]


@both
async def test_a_user_and_password_are_sent(transport: str) -> None:
    basic = pytest.importorskip("otel_zernel_extensions.basicauth").BasicAuthExtension
    sink, clients = sink_of(transport), {"client_auth": {"username": "team", "password": "geheim"}}
    context = make_context("extensions", "token", clock=SystemClock())
    async with (
        basic(basic.Config.model_validate(clients), context) as extension,
        exporting(sink, **with_extension(extension)) as exporter,
    ):
        await exporter.export(metrics_batch())
    assert authorizations(sink) == [f"Basic {b64encode(b'team:geheim').decode()}"]


@pytest.mark.parametrize(
    ("transport", "endpoint", "warned"),
    [
        ("http", "http://gateway:4318", True),
        ("http", "https://gateway:4318", False),
        ("http", "http://127.0.0.1:4318", False),
        ("grpc", "http://gateway:4317", True),
        ("grpc", "gateway:4317", False),
        ("grpc", "http://localhost:4317", False),
        ("grpc", "http://[::1]:4317", False),
    ],
)
async def test_credentials_without_tls_are_warned_of(
    transport: str, endpoint: str, warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async with exporter_of(transport, endpoint, **with_extension(Token())):
        pass
    assert ("The credentials of extension token are sent without TLS" in caplog.text) is warned
