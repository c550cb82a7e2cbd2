"""Masters that answer nonsense: the exporter counts it, stays small, and goes on with the next good master."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import psutil
import pytest

from otel_zernel.clock import SystemClock
from otel_zernel.testing import make_context, until
from otel_zernel_exporters.heartbeat import HeartbeatExporter
from otel_zernel_libraries.cluster.messages import REGISTER_WORKER, STREAM_HEARTBEATS, HeartbeatAck
from tests.exporters.heartbeat.test_session import Master, problem, serving

GOOD = HeartbeatAck(success=True).SerializeToString()
UNKNOWN_FIELD = b"\xfa\x07"
"""Field 127, with a length."""
CODES = [code for code in grpc.StatusCode if code not in (grpc.StatusCode.OK, grpc.StatusCode.UNIMPLEMENTED)]


class HurriedClock(SystemClock):
    """A clock whose waits are short, so that a test sees many connections."""

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(min(seconds, 0.01))


class AnsweringMaster:
    """A master that answers each request with the next of these bytes, or fails with a status."""

    def __init__(self, answer: Callable[[], "bytes | grpc.StatusCode"]) -> None:
        self.answer = answer
        self.details = ""
        self.answered = 0

    def service(self, details: Any) -> Any:
        if details.method == STREAM_HEARTBEATS:
            return grpc.stream_stream_rpc_method_handler(self._stream, None, None)
        return grpc.unary_unary_rpc_method_handler(self._call, None, None)

    async def _call(self, _: bytes, context: Any) -> bytes:
        self.answered += 1
        answer = self.answer()
        if isinstance(answer, grpc.StatusCode):
            await context.abort(answer, self.details)
        return answer  # type: ignore[return-value]  # abort raises

    async def _stream(self, requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        async for request in requests:
            yield await self._call(request, context)


@asynccontextmanager
async def beating(port: int) -> AsyncIterator[HeartbeatExporter]:
    fields = {"endpoint": f"http://127.0.0.1:{port}", "interval": "10ms", "timeout": "500ms", "worker_id": "w"}
    context = make_context("exporters", "heartbeat", clock=HurriedClock())
    async with HeartbeatExporter(HeartbeatExporter.Config.model_validate(fields), context) as exporter:
        yield exporter


async def goes_on(master: AnsweringMaster, exporter: HeartbeatExporter) -> None:
    """A master that is good again gets heartbeats, and no problem is left."""
    master.answer = lambda: GOOD
    seen = master.answered
    await until(lambda: master.answered > seen + 3 and problem(exporter) == "", 60)


async def test_random_answers_end_no_exporter() -> None:
    chance = random.Random(7)

    def answer() -> bytes:
        return chance.randbytes(chance.randrange(1, 60)) if chance.random() < 0.5 else GOOD

    master = AnsweringMaster(answer)
    async with serving(master) as port, beating(port) as exporter:  # type: ignore[arg-type]  # it has the one method
        await until(lambda: master.answered > 80, 60)
        await goes_on(master, exporter)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"\xff\xff\xff", "the answer is not a cluster.HeartbeatAck"),
        (b"\x0a\x7f", "the answer is not a cluster.HeartbeatAck"),
        (b"", "the master refuses the worker w"),
        (b"\x0a\x04text", "the master refuses the worker w"),
        (UNKNOWN_FIELD + b"\xff\xff\xff\x02" + bytes(6 << 20), "RESOURCE_EXHAUSTED"),
        *(
            (code, code.name)
            for code in grpc.StatusCode
            if code not in (grpc.StatusCode.OK, grpc.StatusCode.UNIMPLEMENTED)
        ),
    ],
)
async def test_an_answer_of_a_wrong_kind_is_a_problem_with_a_sentence(answer: Any, words: str) -> None:
    master = AnsweringMaster(lambda: answer)
    master.details = "odd \x1b[31m text\n" * 400
    async with serving(master) as port, beating(port) as exporter:  # type: ignore[arg-type]
        await until(lambda: words in problem(exporter), 60)
        assert len(problem(exporter)) < 2000
        assert "Unexpected" not in problem(exporter)
        await goes_on(master, exporter)


async def test_an_unknown_field_is_ignored() -> None:
    master = AnsweringMaster(lambda: GOOD + UNKNOWN_FIELD + b"\x80\x80\x40" + bytes(1 << 20))
    async with serving(master) as port, beating(port) as exporter:  # type: ignore[arg-type]
        await until(lambda: master.answered > 5, 60)
        assert problem(exporter) == ""


class FloodingMaster(Master):
    """A master that answers without end, whether it is asked or not."""

    beats = 0

    async def _stream(self, requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[Any]:
        self.calls.append(STREAM_HEARTBEATS)
        counting = asyncio.create_task(self._count(requests))
        try:
            while True:
                yield HeartbeatAck(success=True)
        finally:
            counting.cancel()

    async def _count(self, requests: AsyncIterator[bytes]) -> None:
        async for _ in requests:
            self.beats += 1


async def test_a_flood_of_answers_takes_little_memory() -> None:
    master = FloodingMaster()
    async with serving(master) as port, beating(port) as exporter:
        await until(lambda: STREAM_HEARTBEATS in master.calls and problem(exporter) == "", 60)
        before = psutil.Process().memory_info().rss
        beats = master.beats
        await until(lambda: master.beats > beats + 30, 60)
        assert psutil.Process().memory_info().rss - before < 64 << 20
        beats = master.beats
        await until(lambda: master.beats > beats, 60)


Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
SETTINGS = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"


def says(*parts: bytes) -> Talk:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        for part in parts:
            writer.write(part)
            await writer.drain()

    return talk


_random = random.Random(11)


@pytest.mark.parametrize(
    "talk",
    [
        says(),
        says(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello"),
        says(_random.randbytes(4096)),
        says(SETTINGS, _random.randbytes(4096)),
        says(SETTINGS, b"\xff\xff\xff\x00\x00\x00\x00\x00\x01", bytes(1 << 16)),
        says(SETTINGS, b"\x00\x00\x04\x08\x00\x00\x00\x00\x01\x00\x00\x00\x00"),
        says(SETTINGS, b"\x00\x00\x08\x07\x00\x00\x00\x00\x00" + bytes(8)),
        says(SETTINGS, *[b"\x00\x00\x08\x06\x00\x00\x00\x00\x00" + bytes(8)] * 2000),
    ],
    ids=["nothing", "http/1.1", "noise", "noise after settings", "a huge frame", "no window", "goaway", "pings"],
)
async def test_a_server_of_another_protocol_is_a_problem_until_a_master_has_its_port(talk: Talk) -> None:
    connections = []

    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(1)
        try:
            await talk(reader, writer)
        except OSError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(once, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with beating(port) as exporter:
        await until(lambda: connections and problem(exporter) != "", 60)
        assert len(problem(exporter)) < 2000
        server.close()
        await server.wait_closed()
        master = Master()
        good = grpc.aio.server()
        good.add_generic_rpc_handlers((master,))  # type: ignore[arg-type]  # it has the one method that is called
        await until(lambda: _bound(good, port), 60)
        await good.start()
        await until(lambda: master.count(STREAM_HEARTBEATS) > 3 and problem(exporter) == "", 60)
        assert master.calls[0] == REGISTER_WORKER
        await good.stop(0)


def _bound(server: Any, port: int) -> bool:
    try:
        return bool(server.add_insecure_port(f"127.0.0.1:{port}"))
    except RuntimeError:
        return False
