"""The server of the api extension: small answers, and 1,000 WebSockets that all get one message."""

import asyncio
import base64
import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable

import psutil

from benchmarks import BenchmarkRow, cpu_of

REQUESTS = 5_000
CLIENTS = 1_000
BROADCASTS = 20
_SERVER = """
import asyncio, uvloop
from otel_zernel_libraries.serving.api.answers import client_gone, json_answer
from otel_zernel_libraries.serving.api.routes import Route
from otel_zernel.clock import SystemClock
from otel_zernel.testing import make_context
from otel_zernel_extensions.api import ApiExtension
from otel_zernel_extensions.api.config import ApiConfig

TEXT = "x" * 1000
sockets = []

async def small(scope, receive, send):
    await json_answer(send, {"id": scope["path_params"]["id"], "text": TEXT})

async def count(scope, receive, send):
    await json_answer(send, len(sockets))

async def broadcast(scope, receive, send):
    loop, pauses = asyncio.get_running_loop(), []
    for start in range(0, len(sockets), 100):
        before = loop.time()
        for one in sockets[start:start + 100]:
            await one({"type": "websocket.send", "text": TEXT})
        pauses.append(loop.time() - before)
        await asyncio.sleep(0)
    await json_answer(send, max(pauses))

async def listen(scope, receive, send):
    await send({"type": "websocket.accept"})
    sockets.append(send)
    await client_gone(receive)

async def main():
    config = ApiConfig.model_validate({"endpoint": "localhost:0", "rate_limit": None, "max_connections": 2000})
    routes = [
        Route("/small/{id}", small), Route("/count", count), Route("/broadcast", broadcast),
        Route("/ws", listen, kind="websocket"),
    ]
    context = make_context("extensions", "api", clock=SystemClock())
    async with ApiExtension(config, context) as api:
        with api.serve("benchmark", routes):
            print(api.address.port, flush=True)
            await asyncio.Event().wait()

with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
    runner.run(main())
"""


def run() -> list[BenchmarkRow]:
    """CPU time of the server's process. The clients are in this one."""
    command = [sys.executable, "-c", _SERVER]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **_PATHS}) as server:
        try:
            assert server.stdout
            port, process = int(server.stdout.readline()), psutil.Process(server.pid)
            return asyncio.run(_measure(port, process))
        finally:
            server.kill()


_PATHS = {"PYTHONPATH": os.pathsep.join(sys.path)}


async def _measure(port: int, process: psutil.Process) -> list[BenchmarkRow]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)

    async def ask(path: str = "/small/7") -> bytes:
        writer.write(b"GET %s HTTP/1.1\r\nhost: localhost\r\n\r\n" % path.encode())
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(int(part[16:]) for part in head.split(b"\r\n") if part.startswith(b"content-length: "))
        return await reader.readexactly(length)

    async def many() -> None:
        for _ in range(REQUESTS):
            await ask()

    await ask()
    request = await _cpu(process, many) / REQUESTS
    before = process.memory_info().rss
    readers = [one for _ in range(CLIENTS // 50) for one in await asyncio.gather(*(_listen(port) for _ in range(50)))]
    while json.loads(await ask("/count")) < CLIENTS:  # noqa: ASYNC110  # another process counts
        await asyncio.sleep(0.01)
    memory = (process.memory_info().rss - before) / CLIENTS
    pauses: list[float] = []

    async def broadcasts() -> None:
        for _ in range(BROADCASTS):
            pauses.append(json.loads(await ask("/broadcast")))
            await asyncio.gather(*(one.readexactly(1004) for one, _ in readers))

    broadcast = await _cpu(process, broadcasts) / BROADCASTS
    writer.close()
    pause = min(pauses)
    return [
        BenchmarkRow("api: a request for 1 kB of JSON", f"{request * 1e6:.0f} us of CPU"),
        BenchmarkRow(f"api: 1 kB to {CLIENTS:,} WebSockets", f"{broadcast * 1e3:.0f} ms of CPU"),
        BenchmarkRow("api: ... pause of the loop, 100 at a time", f"{pause * 1e3:.1f} ms", "<= 10 ms", pause <= 0.01),
        BenchmarkRow("api: ... memory of each", f"{memory / 1e3:.0f} kB"),
    ]


async def _listen(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A WebSocket. The writer is kept, because its end would close the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    key = base64.b64encode(os.urandom(16)).decode()
    upgrade = "connection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13"
    writer.write(f"GET /ws HTTP/1.1\r\nhost: localhost\r\n{upgrade}\r\nsec-websocket-key: {key}\r\n\r\n".encode())
    await reader.readuntil(b"\r\n\r\n")
    return reader, writer


async def _cpu(process: psutil.Process, work: Callable[[], Awaitable[None]]) -> float:
    """The CPU time that the process takes meanwhile, in s."""
    before = cpu_of(process)
    await work()
    return cpu_of(process) - before
