"""OTLP over HTTP: what is accepted arrives as it was sent, and every other request gets the documented answer."""

import gzip
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from google.rpc.code_pb2 import Code
from google.rpc.status_pb2 import Status

from otel_zernel.batch import SIGNALS, Batch, Signal
from otel_zernel.errors import CannotStart, Refused, Rejected
from otel_zernel.otlp.json import to_json
from otel_zernel_receivers.otlp import OtlpReceiver
from otel_zernel_receivers.otlp.config import HttpConfig
from tests.receivers.otlp.serving import COMPRESS, PROTO, REQUESTS, Recording, gauge, receiving

JSON = {"content-type": "application/json"}
REQUEST = gauge().SerializeToString()


def http(**options: Any) -> dict[str, Any]:
    return {"http": {"endpoint": "localhost:0", **options}}


@asynccontextmanager
async def client_of(receiver: OtlpReceiver, **options: Any) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=f"http://{receiver.addresses['http']}", **options) as client:
        yield client


async def answer(body: bytes = REQUEST, headers: Any = PROTO, **options: Any) -> httpx.Response:
    """The answer of a new receiver to one request for metrics."""
    async with receiving(options.pop("emit", Recording()), http(**options)) as receiver, client_of(receiver) as client:
        return await client.post("/v1/metrics", content=body, headers=headers)


def status_of(response: httpx.Response) -> tuple[int, int, str]:
    """The status of HTTP, and the code and the message of the `google.rpc.Status` in the body."""
    if response.headers["content-type"] == "application/json":
        status = json.loads(response.content)
        return response.status_code, status["code"], status["message"]
    assert response.headers["content-type"] == "application/x-protobuf"
    message = Status.FromString(response.content)
    return response.status_code, message.code, message.message


@pytest.mark.parametrize("signal", SIGNALS)
@pytest.mark.parametrize("content_type", ["application/json", "Application/JSON; charset=utf-8"])
async def test_json_means_the_same_as_protobuf(signal: Signal, content_type: str) -> None:
    downstream, request = Recording(), REQUESTS[signal]
    async with receiving(downstream, http()) as receiver, client_of(receiver) as client:
        body = to_json(request)
        headers = {"content-type": content_type}
        response = await client.post(HttpConfig().url_path(signal), content=body, headers=headers)
    assert (response.status_code, response.content) == (200, b"{}")
    assert response.headers["content-type"] == "application/json"
    assert [batch.message(signal) for batch in downstream.batches] == [request]


async def test_a_large_body_of_json_arrives_complete() -> None:
    downstream, request = Recording(), gauge(2000)
    async with receiving(downstream, http()) as receiver, client_of(receiver) as client:
        body = gzip.compress(to_json(request))
        response = await client.post("/v1/metrics", content=body, headers={**JSON, "content-encoding": "gzip"})
    assert response.status_code == 200
    assert downstream.batches[0].metrics == request


@pytest.mark.parametrize("body", [b"{}", b'{"resourceMetrics":[]}'])
async def test_an_empty_request_of_json_is_a_success_and_goes_nowhere(body: bytes) -> None:
    downstream = Recording()
    assert (await answer(body, JSON, emit=downstream)).status_code == 200
    assert downstream.batches == []


async def test_a_refused_request_of_json_gets_the_same_answer_as_json() -> None:
    async def refuse(batch: Batch, *, transport: str = "") -> None:
        raise Refused("sending queue is full: otlp", 7.5)

    response = await answer(to_json(gauge()), JSON, emit=refuse)
    assert status_of(response) == (503, Code.UNAVAILABLE, "sending queue is full: otlp")
    assert response.headers["retry-after"] == "8"
    assert json.loads(response.content)["details"][0]["retryDelay"] == "8s"


async def test_a_rejected_request_is_500() -> None:
    """Not 400: the request is right."""

    async def reject(batch: Batch, *, transport: str = "") -> None:
        raise Rejected("an exporter without a queue dropped the batch")

    assert status_of(await answer(emit=reject))[:2] == (500, Code.INTERNAL)


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (b"\xff\xff\xff", PROTO),
        (b"{", JSON),
        (b'{"resourceMetrics": 3}', JSON),
        (b"not gzip", {**PROTO, "content-encoding": "gzip"}),
        (gzip.compress(REQUEST)[:-9], {**PROTO, "content-encoding": "gzip"}),
        (b"not zstd", {**PROTO, "content-encoding": "zstd"}),
        (b"not zlib", {**PROTO, "content-encoding": "deflate"}),
    ],
)
async def test_an_undecodable_request_is_400(body: bytes, headers: Mapping[str, str]) -> None:
    response = await answer(body, headers)
    assert status_of(response)[:2] == (400, Code.INTERNAL)
    assert response.headers["content-type"] == headers["content-type"]


@pytest.mark.parametrize("compression", ["br", "lzma", "gzip, gzip", "identitygzip", "x" * 2000])
async def test_an_unknown_encoding_is_400_and_the_answer_lists_the_known_ones(compression: str) -> None:
    response = await answer(REQUEST, {**PROTO, "content-encoding": compression})
    assert status_of(response)[:2] == (400, Code.UNIMPLEMENTED)
    assert "use deflate, gzip, lz4, snappy, x-snappy-framed, zlib, zstd" in status_of(response)[2]


async def test_a_compression_that_is_switched_off_is_400() -> None:
    body = gzip.compress(REQUEST)
    response = await answer(body, {**PROTO, "content-encoding": "gzip"}, compression_algorithms=["", "zstd"])
    assert status_of(response)[:2] == (400, Code.UNIMPLEMENTED)


@pytest.mark.parametrize("compression", ["", *COMPRESS])
async def test_a_body_over_the_limit_is_413_as_sent_and_as_decompressed(compression: str) -> None:
    limit = 5000
    for size, accepted in ((limit, True), (limit + 1, False)):
        metrics = gauge()
        metrics.resource_metrics[0].schema_url = "x" * (size - metrics.ByteSize() - 3)
        body = metrics.SerializeToString()
        assert len(body) == size
        sent = COMPRESS[compression](body) if compression else body
        response = await answer(sent, {**PROTO, "content-encoding": compression}, max_request_body_size=limit)
        assert response.status_code == (200 if accepted else 413), size
    assert status_of(response)[1:] == (
        Code.RESOURCE_EXHAUSTED,
        "the body is larger than max_request_body_size (5000 bytes)",
    )


async def test_a_chunked_body_over_the_limit_is_413() -> None:
    async def endless() -> AsyncIterator[bytes]:
        for _ in range(100):
            yield bytes(1000)

    async with receiving(Recording(), http(max_request_body_size=5000)) as receiver, client_of(receiver) as client:
        response = await client.post("/v1/metrics", content=endless(), headers=PROTO)
    assert response.status_code == 413


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "HEAD", "OPTIONS"])
async def test_another_method_is_405_in_plain_text(method: str) -> None:
    async with receiving(Recording(), http()) as receiver, client_of(receiver) as client:
        response = await client.request(method, "/v1/metrics")
    assert (response.status_code, response.headers["allow"]) == (405, "POST")
    assert response.headers["content-type"].startswith("text/plain")


@pytest.mark.parametrize("content_type", ["", "text/plain", "application/protobuf", "x" * 2000])
async def test_another_content_type_is_415_in_plain_text(content_type: str) -> None:
    response = await answer(headers={"content-type": content_type})
    assert response.status_code == 415
    assert response.headers["content-type"].startswith("text/plain")


async def test_an_unknown_path_is_404_and_names_the_known_ones() -> None:
    async with receiving(Recording(), http(metrics_url_path="/in")) as receiver, client_of(receiver) as client:
        response = await client.post("/v1/metrics", content=REQUEST, headers=PROTO)
        assert (await client.post("/in", content=REQUEST, headers=PROTO)).status_code == 200
    assert status_of(response)[0] == 404
    assert "OTLP is at /in, /v1/traces, /v1/logs" in status_of(response)[2]


async def test_configured_headers_are_in_every_answer() -> None:
    options = {"response_headers": {"X-Gateway": "one"}, "keep_alives_enabled": False}
    for body in (REQUEST, b"\xff"):
        response = await answer(body, **options)
        assert (response.headers["x-gateway"], response.headers["connection"]) == ("one", "close")


async def test_a_unix_socket_serves_and_disappears(tmp_path: Path) -> None:
    path, downstream = tmp_path / "otlp.sock", Recording()
    async with receiving(downstream, http(endpoint=str(path), transport="unix")):
        transport = httpx.AsyncHTTPTransport(uds=str(path))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            assert (await client.post("/v1/metrics", content=REQUEST, headers=PROTO)).status_code == 200
    assert downstream.point_count == 3
    assert not path.exists()


async def test_ipv6_serves_where_the_machine_has_it() -> None:
    downstream = Recording()
    try:
        protocols = http(endpoint="[::1]:0", transport="tcp6")
        async with receiving(downstream, protocols) as receiver, client_of(receiver) as client:
            assert (await client.post("/v1/metrics", content=REQUEST, headers=PROTO)).status_code == 200
    except CannotStart as error:
        pytest.skip(f"this machine has no IPv6: {error}")
    assert downstream.point_count == 3


async def test_a_name_that_does_not_resolve_is_an_error_that_names_the_key() -> None:
    with pytest.raises(CannotStart, match=r"protocols::http::endpoint: cannot resolve nowhere.invalid"):
        async with receiving(Recording(), http(endpoint="nowhere.invalid:4318")):
            pass
