"""A real collector with an otlp receiver, a sink behind it, and an honest sender that must always be served."""

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import httpx
import psutil
import yaml

from otel_zernel.batch import Batch
from otel_zernel.testing import until
from tests.exporters.otlp.collectors import listening
from tests.exporters.otlp.peers import GrpcSink
from tests.receivers.otlp.serving import call, gauge

REQUEST = gauge(10).SerializeToString()
PROTO = {"content-type": "application/x-protobuf"}


@dataclass
class Gateway:
    """A running collector."""

    grpc: int
    http: int
    process: psutil.Process
    sink: GrpcSink
    before: float = 0.0
    """Resident memory before the abuse, in MB."""
    took: list[float] = field(default_factory=list)
    """Durations of the honest sender's requests, in s."""

    def rss(self) -> float:
        """Resident memory in MB."""
        return float(self.process.memory_info().rss / 1e6)

    @property
    def arrived(self) -> int:
        """Points in the sink."""
        return sum(Batch.from_bytes(metrics=request).point_count for request in self.sink.requests)

    @asynccontextmanager
    async def honest_sender(self) -> AsyncIterator[None]:
        """Meanwhile a sender sends over both protocols, and all of its requests are accepted."""
        self.before, self.took = self.rss(), []
        sending = asyncio.create_task(self._send_honestly())
        try:
            yield
            await until(lambda: len(self.took) >= 20 or sending.done(), within=30)
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
        if not sending.cancelled() and (error := sending.exception()):
            raise error
        slowest = sorted(self.took)[int(len(self.took) * 0.99)] * 1e3
        memory = f"{self.before:.0f} -> {self.rss():.0f} MB"
        sys.stdout.write(f"\nhonest requests: {len(self.took)}, p99 {slowest:.0f} ms; memory {memory}\n")

    async def _send_honestly(self) -> None:
        async with (
            grpc.aio.insecure_channel(f"127.0.0.1:{self.grpc}") as channel,
            httpx.AsyncClient(base_url=f"http://127.0.0.1:{self.http}") as client,
        ):
            while True:
                start = time.monotonic()
                await call(channel)(REQUEST, timeout=60)
                middle = time.monotonic()
                (await client.post("/v1/metrics", content=REQUEST, headers=PROTO, timeout=60)).raise_for_status()
                self.took += [middle - start, time.monotonic() - middle]
                await asyncio.sleep(0.01)

    async def still_serves(self) -> None:
        """A new sender is served."""
        async with grpc.aio.insecure_channel(f"127.0.0.1:{self.grpc}") as channel:
            await call(channel)(REQUEST, timeout=60)
        assert self.process.is_running()
        assert self.process.status() != psutil.STATUS_ZOMBIE


@asynccontextmanager
async def gateway(folder: Path, port: Callable[[], int], **receiver: Any) -> AsyncIterator[Gateway]:
    """A collector that forwards to a sink. Its log is in the folder."""
    sink, ports = GrpcSink(), (port(), port())
    async with sink.serve() as sink_port:
        protocols = {
            "grpc": {"endpoint": f"127.0.0.1:{ports[0]}"},
            "http": {"endpoint": f"127.0.0.1:{ports[1]}"},
        }
        settings = {
            "receivers": {"otlp": {"protocols": protocols, **receiver}},
            "exporters": {"otlp_grpc": {"endpoint": f"http://localhost:{sink_port}", "compression": "none"}},
            "service": {
                "telemetry": {"metrics": {"level": "none"}},
                "pipelines": {"metrics": {"receivers": ["otlp"], "exporters": ["otlp_grpc"]}},
            },
        }
        config = folder / "config.yaml"
        config.write_text(yaml.safe_dump(settings))
        command = [sys.executable, "-m", "otel_zernel", "run", "--config", str(config)]
        with (folder / "collector.log").open("w") as log:
            process = await asyncio.create_subprocess_exec(*command, stderr=log)
        try:
            for one in ports:
                await listening(one, process, folder / "collector.log")
            running = Gateway(*ports, psutil.Process(process.pid), sink)
            await running.still_serves()
            yield running
            assert process.returncode is None, (folder / "collector.log").read_text()
        finally:
            if process.returncode is None:
                process.terminate()
            await process.wait()
        text = (folder / "collector.log").read_text()
        assert "Traceback" not in text, text
