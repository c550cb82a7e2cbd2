"""Both exporters send the credentials of an authentication extension."""

from base64 import b64encode
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import grpc
import pytest
from starlette.responses import Response

from otel_zernel.authentication import ClientAuthenticator
from otel_zernel.clock import SystemClock
from otel_zernel.component import ComponentConfig, Context, Extension
from otel_zernel.errors import CannotStart, Correctable, Retryable
from otel_zernel.testing import make_context, until
from otel_zernel_exporters.otlp import OtlpGrpcExporter, OtlpHttpExporter
from otel_zernel_exporters.otlp.config import OtlpGrpcConfig, OtlpHttpConfig
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


class Sink:
    """A server of one transport, and the exporter for it."""

    def __init__(self, transport: str) -> None:
        self.transport = transport
        self.http, self.grpc = HttpSink(), GrpcSink()

    def serve(self) -> AbstractAsyncContextManager[object]:
        return self.http.serve() if self.transport == "http" else self.grpc.serve()

    def exporter(
        self, place: object, extension: Extension | None, **fields: Any
    ) -> OtlpHttpExporter | OtlpGrpcExporter:
        fields = {"auth": {"authenticator": "token"}, **fields}
        context: Context = make_context("exporters", "otlp", extensions={"token": extension} if extension else {})
        if self.transport == "http":
            return OtlpHttpExporter(OtlpHttpConfig.model_validate({"endpoint": place, **fields}), context)
        config = OtlpGrpcConfig.model_validate({"endpoint": f"http://localhost:{place}", **fields})
        return OtlpGrpcExporter(config, context)

    def refuse(self) -> None:
        async def answer(call: Any) -> None:
            await call.abort(grpc.StatusCode.UNAUTHENTICATED, "expired")

        self.http.answers.append(Response("expired", 401, media_type="text/plain"))
        self.grpc.answers.append(answer)

    @property
    def authorizations(self) -> list[object]:
        received = [one.headers for one in self.http.requests] if self.transport == "http" else self.grpc.metadata
        return [headers["authorization"] for headers in received]


both = pytest.mark.parametrize("transport", ["grpc", "http"])


@both
async def test_the_token_is_asked_for_each_request_and_replaces_a_configured_header(transport: str) -> None:
    sink, token = Sink(transport), Token()
    async with (
        sink.serve() as place,
        sink.exporter(place, token, headers={"Authorization": "Bearer configured"}) as exporter,
    ):
        await exporter.export(metrics_batch())
        token.value = "Bearer two"
        await exporter.export(metrics_batch())
    assert sink.authorizations == ["Bearer one", "Bearer two"]


@both
async def test_refused_credentials_keep_the_batch_and_name_the_extension(transport: str) -> None:
    sink = Sink(transport)
    sink.refuse()
    async with sink.serve() as place, sink.exporter(place, Token("Bearer geheim")) as exporter:
        with pytest.raises(
            Correctable, match=r"expired \(the server refused the credentials of extension token\)"
        ) as seen:
            await exporter.export(metrics_batch())
    assert "geheim" not in str(seen.value)


@both
async def test_missing_credentials_keep_the_batch_and_have_advice(transport: str) -> None:
    sink = Sink(transport)
    sink.refuse()
    async with sink.serve() as place, sink.exporter(place, None, auth=None) as exporter:
        with pytest.raises(Correctable, match=r"expired \(if the server requires credentials, set auth::authenticator"):
            await exporter.export(metrics_batch())


@both
@pytest.mark.parametrize("value", [FileNotFoundError("no token file"), "Bearer geheim\n", "Bearer g\u00e9heim"])
async def test_unusable_credentials_keep_the_batch_and_are_not_printed(transport: str, value: str | Exception) -> None:
    sink = Sink(transport)
    async with sink.serve() as place, sink.exporter(place, Token(value)) as exporter:
        with pytest.raises(Retryable, match="extension token") as seen:
            await exporter.export(metrics_batch())
    assert "heim" not in str(seen.value)
    assert sink.authorizations == []


@both
async def test_an_extension_that_is_not_enabled_or_no_authenticator_stops_the_start(transport: str) -> None:
    sink = Sink(transport)
    place = "http://localhost:1" if transport == "http" else 1
    with pytest.raises(CannotStart, match="extension token is not enabled; add it to service::extensions"):
        await sink.exporter(place, None).__aenter__()
    for other in (Extension(ComponentConfig(), make_context("extensions", "token")), ForServers()):
        with pytest.raises(CannotStart, match="auth::authenticator: extension token cannot add credentials: "):
            await sink.exporter(place, other).__aenter__()


@both
async def test_a_token_that_changes_in_its_file_is_sent_from_then_on(transport: str, tmp_path: Path) -> None:
    bearer = pytest.importorskip("otel_zernel_extensions.bearertokenauth").BearerTokenAuthExtension
    sink, file = Sink(transport), tmp_path / "token"
    file.write_text("one")
    config = bearer.Config.model_validate({"filename": str(file)})
    async with (
        bearer(config, make_context("extensions", "token", clock=SystemClock())) as extension,
        sink.serve() as at,
        sink.exporter(at, extension) as exporter,
    ):
        await exporter.export(metrics_batch())
        file.write_text("two")
        await until(lambda: "two" in extension.headers()["authorization"])
        await exporter.export(metrics_batch())
    assert sink.authorizations == ["Bearer one", "Bearer two"]


@both
async def test_a_user_and_password_are_sent(transport: str) -> None:
    basic = pytest.importorskip("otel_zernel_extensions.basicauth").BasicAuthExtension
    sink, clients = Sink(transport), {"client_auth": {"username": "team", "password": "geheim"}}
    context = make_context("extensions", "token", clock=SystemClock())
    async with (
        basic(basic.Config.model_validate(clients), context) as extension,
        sink.serve() as place,
        sink.exporter(place, extension) as exporter,
    ):
        await exporter.export(metrics_batch())
    assert sink.authorizations == [f"Basic {b64encode(b'team:geheim').decode()}"]


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
    fields = {"endpoint": endpoint, "auth": {"authenticator": "token"}}
    own = make_context("exporters", "otlp", extensions={"token": Token()})
    exporter = (
        OtlpHttpExporter(OtlpHttpConfig.model_validate(fields), own)
        if transport == "http"
        else OtlpGrpcExporter(OtlpGrpcConfig.model_validate(fields), own)
    )
    async with exporter:
        pass
    assert ("The credentials of extension token are sent without TLS" in caplog.text) is warned
