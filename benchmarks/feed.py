"""The feed: 1,000 readers at one message a second, 500 readers that stall, and the state of 64 ranks."""

import asyncio
import resource
import subprocess
import sys
import time
from collections.abc import Iterator

from benchmarks import BenchmarkRow, cpu_seconds
from otel_zernel.testing import until
from otel_zernel_exporters.websocket import WebSocketExporter
from tests.exporters.websocket.feeds import FeedRun, explicit, feeding, memory

READERS = 1000
PUSHES = 20
STALLED = 500
STALLED_PUSHES = 1500
RANKS = 64
_CLIENT = """
import selectors, socket, sys
from tests.libraries.serving.frames import handshake
count, reads = int(sys.argv[2]), sys.argv[3] == "reads"
sockets = []
for _ in range(count):
    one = socket.socket()
    if not reads:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    one.connect(("127.0.0.1", int(sys.argv[1])))
    one.sendall(handshake())
    sockets.append(one)
print("ready", flush=True)
if not reads:
    sys.stdin.read()
chosen = selectors.DefaultSelector()
for one in sockets:
    chosen.register(one, selectors.EVENT_READ)
while reads:
    for key, _ in chosen.select():
        if not key.fileobj.recv(1 << 16):
            sys.exit()
"""


def run() -> list[BenchmarkRow]:
    """CPU time, memory, and the longest time that the event loop was held."""
    return [*_state(), *asyncio.run(_readers()), *asyncio.run(_stalled())]


def _state() -> Iterator[BenchmarkRow]:
    """A second of 64 ranks, and a message."""
    feed = FeedRun()
    batches = [memory(1 << 30, pid=rank) for rank in range(RANKS)]
    values = {index * 1e-5: 10 for index in range(1, 50)}
    batches += [explicit("zernel.cuda.launch.latency", values, process_pid=rank) for rank in range(RANKS)]
    begun = time.process_time()
    for _ in range(10):
        for batch in batches:
            feed.feed.add(batch)
    spent = (time.process_time() - begun) / 10
    yield BenchmarkRow("feed: a second of 64 ranks, CPU", f"{spent * 1e3:.1f} ms", "<= 50 ms", spent <= 0.05)
    spent = cpu_seconds(feed.feed.message, 10)
    yield BenchmarkRow("feed: a message of 64 ranks, CPU", f"{spent * 1e3:.2f} ms", "<= 5 ms", spent <= 0.005)


async def _readers() -> list[BenchmarkRow]:
    async with feeding(push_interval="1h") as exporter:
        for rank in range(8):
            await exporter.export(memory(1 << 30, pid=rank))
        before = _memory()
        with _clients(exporter.address.port, READERS, "reads") as clients:
            await until(lambda: len(exporter.readers) == READERS)
            await asyncio.sleep(1)
            begun = time.process_time()
            await _push(exporter)
            spent = (time.process_time() - begun) / PUSHES
            watching = asyncio.create_task(_longest_hold())  # it takes a whole CPU
            await _push(exporter)
            watching.cancel()
            held = await watching
            clients.kill()
        grown = _memory() - before
    return [
        BenchmarkRow("feed: a push to 1,000 readers, CPU", f"{spent * 1e3:.0f} ms", "<= 60 ms", spent <= 0.06),
        BenchmarkRow("feed: the event loop is held", f"{held * 1e3:.1f} ms", "<= 10 ms", held <= 0.01),
        BenchmarkRow("feed: memory of 1,000 readers", f"{grown / 1e6:.0f} MB", "<= 80 MB", grown <= 80e6),
    ]


async def _push(exporter: WebSocketExporter) -> None:
    for _ in range(PUSHES):
        await exporter.readers.push()
        await asyncio.sleep(0.1)


async def _stalled() -> list[BenchmarkRow]:
    """Readers that read nothing, and messages of 75 KB."""
    async with feeding(push_interval="1h") as exporter:
        for pid in range(1024):
            await exporter.export(memory(1 << 30, pid=pid))
        before = _memory()
        with _clients(exporter.address.port, STALLED, "stalls") as clients:
            await until(lambda: len(exporter.readers) == STALLED)
            for _ in range(STALLED_PUSHES):
                await exporter.readers.push()
            grown = _memory() - before
            clients.kill()
    return [BenchmarkRow("feed: memory of 500 readers that stall", f"{grown / 1e6:.0f} MB", "<= 90 MB", grown <= 90e6)]


def _clients(port: int, count: int, kind: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", _CLIENT, str(port), str(count), kind]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)


async def _longest_hold() -> float:
    """The longest time (s) between two turns of the event loop, until it is cancelled."""
    longest, last = 0.0, time.perf_counter()
    try:
        while True:
            await asyncio.sleep(0)
            now = time.perf_counter()
            longest, last = max(longest, now - last), now
    except asyncio.CancelledError:
        return longest


def _memory() -> int:
    """The highest resident memory (bytes) so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
