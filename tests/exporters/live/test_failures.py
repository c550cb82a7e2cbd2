"""Failures of the exporter, of its process and of its readers: none ends the stream for good, or without a word."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from otel_zernel.clock import SystemClock
from otel_zernel.testing import make_context, until
from otel_zernel.types import Address
from otel_zernel_exporters.live import LiveExporter
from otel_zernel_libraries.serving.limits import ServerLimits
from otel_zernel_libraries.serving.serving import serve
from tests.api_server import FakeApiServer, FakeConnection
from tests.collectors import collector
from tests.exporters.live.live_runs import phase_times
from tests.exporters.live.test_streaming import URL, BareStream, bodies
from tests.free_ports import free_port


async def test_an_error_in_a_push_is_reported_and_the_readers_begin_anew() -> None:
    bare, first, second = BareStream(SystemClock()), FakeConnection(), FakeConnection()
    async with bare.connected(first):
        running = asyncio.create_task(bare.stream.run())
        bare.collector = {"text": float("nan")}  # no JSON
        await until(lambda: bare.failures)
        bare.collector = {"number": 7}
        await until(lambda: not bare.stream.readers)
    async with bare.connected(second):
        assert b'"collector":{"number":7}' in b"".join(bodies(second))
        list(bodies(second))
        bare.collector = {"number": 8}
        await until(lambda: b'["collector","number"],8' in b"".join(bodies(second)))
    assert not running.done()
    running.cancel()


async def test_an_error_while_the_state_is_rendered_loses_no_change() -> None:
    bare = BareStream()
    bare.state.add(phase_times(gpu_compute=1.0))
    before = bare.state.published.seq
    with pytest.raises(ValueError, match="JSON"):
        bare.state.advance({"number": float("nan")})  # no JSON
    state = bare.state.snapshot({"number": 1})
    assert (len(state["ranks"]), state["collector"]) == (1, {"number": 1})
    assert bare.state.published.since(before) is None


def exporter_of(context: Any, **config: Any) -> LiveExporter:
    return LiveExporter(LiveExporter.Config.model_validate({"push_interval": "100ms", **config}), context)


async def test_a_reload_keeps_the_state_unless_its_settings_change() -> None:
    api = FakeApiServer()
    first = make_context("exporters", "live", clock=SystemClock(), extensions={"api": api})

    async def ranks(exporter: LiveExporter) -> int:
        async with exporter:
            return len((await api.get("/api/live")).json["ranks"])

    async with exporter_of(first) as exporter:
        await exporter.export(phase_times(gpu_compute=1.0))
        before = (await api.get("/api/live")).json["seq"]
    second = replace(make_context("exporters", "live", clock=SystemClock(), extensions={"api": api}), kept=first.kept)
    assert await ranks(again := exporter_of(second, push_interval="200ms")) == 1
    assert again._state.published.seq >= before
    assert await ranks(exporter_of(second, history=10)) == 0


async def test_a_request_that_a_reload_overtakes_is_answered() -> None:
    """The server ends running requests only after the exporter has left."""
    context = make_context("exporters", "live", clock=SystemClock(), extensions={"api": FakeApiServer()})
    async with exporter_of(context) as exporter:
        await exporter.export(phase_times(gpu_compute=1.0))
    connection = FakeConnection()
    await exporter._stream.answer_state({"headers": []}, connection.receive, connection.send)
    assert len(json.loads(b"".join(bodies(connection)))["ranks"]) == 1


@asynccontextmanager
async def served(bare: BareStream) -> AsyncIterator[int]:
    """The port of a server with the stream, and with the buffers of the extension `api`."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await bare.stream.answer_stream(scope, receive, send)

    limits = ServerLimits(send_buffer=1 << 16, write_time=1.0)
    async with serve(app, Address("127.0.0.1", 0), "test", limits=limits) as address:
        yield address.port


def everything(client: socket.socket) -> int:
    """The bytes until the end of the connection."""
    size = 0
    try:
        while part := client.recv(1 << 20):
            size += len(part)
    except ConnectionResetError:
        pass
    return size


async def test_a_stalled_client_is_dropped_and_holds_little_memory_of_the_kernel() -> None:
    bare, pushed = BareStream(), 0
    async with served(bare) as port:
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n")
            await until(lambda: bare.stream.readers)
            while bare.stream.readers:
                await bare.change(1 << 19)
                pushed += 1
                await asyncio.sleep(0.01)
            assert pushed > 1
            size = await asyncio.to_thread(everything, client)
    assert size < 2 << 20
    assert bare.slow == 1


async def event(lines: AsyncIterator[str]) -> dict[str, str]:
    """The next event of a stream."""
    fields: dict[str, str] = {}
    async for line in lines:
        name, _, value = line.partition(": ")
        if line:
            fields[name] = value
        elif "data" in fields:
            return fields
        else:
            fields = {}
    raise RuntimeError("the stream has ended")


async def test_after_a_kill_a_reader_that_comes_back_gets_the_whole_state_of_the_new_process(tmp_path: Path) -> None:
    port = free_port()
    pipeline = {"receivers": ["host"], "exporters": ["live"]}
    settings = {
        "receivers": {"host": {"collection_interval": "1s", "scrapers": {"cpu": {}}}},
        "exporters": {"live": {"push_interval": "100ms"}},
        "extensions": {"api": {"endpoint": f"127.0.0.1:{port}"}},
        "service": {"extensions": ["api"], "pipelines": {"metrics": pipeline}},
    }
    url, last = f"http://127.0.0.1:{port}{URL}", ""
    async with httpx.AsyncClient(timeout=60) as client:
        for _ in range(2):
            async with collector(tmp_path, settings, port) as running:
                headers = {"last-event-id": last} if last else {}
                async with client.stream("GET", url, headers=headers) as answer:
                    first = await event(answer.aiter_lines())
                    running.kill()
            assert first["event"] == "state"
            assert json.loads(first["data"])["seq"] == int(first["id"]) > int(last or 0)
            last = first["id"]
