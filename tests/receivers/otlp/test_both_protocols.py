"""What both protocols promise: accepted data arrive as they were sent, and every other request gets its code."""

import asyncio
from dataclasses import dataclass
from typing import Any, cast

import grpc
import httpx
import pytest
from google.rpc.code_pb2 import Code
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status

from otel_zernel.batch import SIGNALS, Batch, Signal
from otel_zernel.errors import CannotStart, Refused, Rejected
from otel_zernel.testing import until
from otel_zernel_receivers.otlp import OtlpReceiver
from otel_zernel_receivers.otlp.config import HttpConfig
from tests.receivers.otlp.serving import COMPRESS, PROTO, REQUESTS, Recording, call, gauge, receiving

REQUEST = gauge().SerializeToString()
BOTH = pytest.mark.parametrize("protocol", ["grpc", "http"])
STATUSES: dict[int, set[int]] = {Code.UNAVAILABLE: {503}, Code.INTERNAL: {400, 500}, Code.UNIMPLEMENTED: {404}}
"""The statuses of HTTP by code."""


@dataclass(frozen=True)
class Answer:
    """An answer of either protocol. Code 0 is a success."""

    code: int = 0
    message: str = ""
    retry_after: int | None = None
    """Seconds."""


async def sent(
    receiver: OtlpReceiver, protocol: str, body: bytes = REQUEST, signal: Signal = "metrics", compression: str = ""
) -> Answer:
    """The answer to a request on a connection of its own."""
    send = {"grpc": _sent_by_grpc, "http": _sent_by_http}[protocol]
    return await send(str(receiver.addresses[protocol]), body, signal, compression)


async def _sent_by_grpc(place: str, body: bytes, signal: Signal, compression: str) -> Answer:
    kinds = {"": grpc.Compression.NoCompression, "gzip": grpc.Compression.Gzip, "deflate": grpc.Compression.Deflate}
    async with grpc.aio.insecure_channel(place) as channel:
        try:
            assert await call(channel, signal)(body, compression=kinds[compression]) == b""
        except grpc.aio.AioRpcError as error:
            code, trailers = error.code().value[0], cast("Any", error.trailing_metadata() or ())
            waits = [_retry_after(code, value) for key, value in trailers if key == "grpc-status-details-bin"]
            return Answer(code, error.details() or "", *waits)
    return Answer()


async def _sent_by_http(place: str, body: bytes, signal: Signal, compression: str) -> Answer:
    headers = {**PROTO, "content-encoding": compression}
    content = COMPRESS[compression](body) if compression else body
    url = f"http://{place}{HttpConfig().url_path(signal)}"
    async with httpx.AsyncClient() as client:
        response = await client.post(url, content=content, headers=headers)
    assert response.headers["content-type"] == PROTO["content-type"]
    if response.status_code == 200:
        assert response.content == b""
        return Answer()
    status = Status.FromString(response.content)
    assert response.status_code in STATUSES[status.code]
    if "retry-after" not in response.headers:
        return Answer(status.code, status.message)
    seconds = int(response.headers["retry-after"])
    assert _retry_after(status.code, response.content) == seconds
    return Answer(status.code, status.message, seconds)


def _retry_after(code: int, details: bytes) -> int:
    status, info = Status.FromString(details), RetryInfo()
    assert status.code == code
    assert status.details[0].Unpack(info)
    return int(info.retry_delay.seconds)


def failing(error: Exception) -> Any:
    """Pipelines that raise this error."""

    async def emit(batch: Batch, *, transport: str = "") -> None:
        raise error

    return emit


@pytest.mark.parametrize("signal", SIGNALS)
@pytest.mark.parametrize(
    ("protocol", "compression"),
    [("grpc", ""), ("grpc", "gzip"), ("grpc", "deflate"), *(("http", compression) for compression in ("", *COMPRESS))],
)
async def test_the_received_bytes_are_forwarded(protocol: str, signal: Signal, compression: str) -> None:
    downstream, request = Recording(), REQUESTS[signal].SerializeToString()
    async with receiving(downstream) as receiver:
        assert await sent(receiver, protocol, request, signal, compression) == Answer()
    assert [batch.bytes_of(signal) for batch in downstream.batches] == [request]
    assert downstream.transports == [protocol]


@BOTH
@pytest.mark.parametrize("signal", SIGNALS)
async def test_an_empty_request_is_a_success_and_goes_nowhere(protocol: str, signal: Signal) -> None:
    downstream = Recording()
    async with receiving(downstream) as receiver:
        assert await sent(receiver, protocol, b"", signal) == Answer()
    assert downstream.batches == []


@BOTH
@pytest.mark.parametrize(("after", "seconds"), [(None, 1), (0.2, 1), (7.5, 8)])
async def test_a_refused_request_is_unavailable_and_says_when_to_try_again(
    protocol: str, after: float | None, seconds: int
) -> None:
    async with receiving(failing(Refused("sending queue is full: otlp", after))) as receiver:
        answer = await sent(receiver, protocol)
    assert answer == Answer(Code.UNAVAILABLE, "sending queue is full: otlp", seconds)


@BOTH
async def test_a_rejected_request_is_internal_and_must_not_be_repeated(protocol: str) -> None:
    async with receiving(failing(Rejected("an exporter without a queue dropped the batch"))) as receiver:
        answer = await sent(receiver, protocol)
    assert (answer.code, answer.retry_after) == (Code.INTERNAL, None)
    assert "an exporter without a queue dropped the batch" in answer.message


@BOTH
async def test_an_undecodable_request_is_internal(protocol: str) -> None:
    async with receiving(Recording()) as receiver:
        answer = await sent(receiver, protocol, b"\xff\xff\xff")
    assert (answer.code, answer.retry_after) == (Code.INTERNAL, None)
    assert "not a valid OTLP message" in answer.message


@BOTH
async def test_a_signal_that_no_pipeline_uses_is_unimplemented(protocol: str) -> None:
    async with receiving(Recording(), signals=frozenset({"metrics"})) as receiver:
        answer = await sent(receiver, protocol, b"", "traces")
    sentence = "no pipeline with this otlp receiver uses traces; add the receiver to a traces pipeline"
    assert answer == Answer(Code.UNIMPLEMENTED, sentence)


@BOTH
async def test_requests_beyond_the_room_are_unavailable_until_there_is_room_again(protocol: str) -> None:
    open_, downstream, request = asyncio.Event(), Recording(), gauge(2000).SerializeToString()

    async def slow(batch: Batch, *, transport: str = "") -> None:
        await open_.wait()
        await downstream(batch, transport=transport)

    async with receiving(slow, max_in_flight_mib=1) as receiver:
        sending = [asyncio.create_task(sent(receiver, protocol, request)) for _ in range(4)]
        done, _ = await asyncio.wait(sending, return_when=asyncio.FIRST_COMPLETED)
        refused = next(iter(done)).result()
        assert refused.code == Code.UNAVAILABLE
        assert "max_in_flight_mib (1 MiB)" in refused.message
        open_.set()
        answers = await asyncio.gather(*sending)
        assert await sent(receiver, protocol, request) == Answer()
    assert len(downstream.batches) == 1 + answers.count(Answer()) >= 2


@BOTH
async def test_a_second_server_on_the_port_is_an_error_that_names_the_key(protocol: str) -> None:
    async with receiving(Recording(), {protocol: {"endpoint": "localhost:0"}}) as receiver:
        place = str(receiver.addresses[protocol])
        problem = rf"receivers::otlp::protocols::{protocol}::endpoint: .* another program has this port"
        with pytest.raises(CannotStart, match=problem):
            async with receiving(Recording(), {protocol: {"endpoint": place}}):
                pass


@BOTH
async def test_a_request_that_runs_when_the_receiver_stops_is_a_success_only_if_it_was_accepted(protocol: str) -> None:
    entered, accepted, stopping = list[int](), list[int](), asyncio.Event()

    async def slow(batch: Batch, *, transport: str = "") -> None:
        entered.append(batch.point_count)
        await (stopping if batch.point_count == 1 else asyncio.Event()).wait()
        accepted.append(batch.point_count)

    async with receiving(slow) as receiver:
        bodies = (gauge(count).SerializeToString() for count in (1, 2))
        short, long = (asyncio.create_task(sent(receiver, protocol, body)) for body in bodies)
        await until(lambda: len(entered) == 2)
        stopping.set()  # the short request goes on after the stop began, as nothing here awaits
    assert await short == Answer()
    (outcome,) = await asyncio.gather(long, return_exceptions=True)
    assert isinstance(outcome, httpx.HTTPError) or outcome.code in (Code.UNAVAILABLE, Code.CANCELLED)  # type: ignore[union-attr]
    assert accepted == [1]
