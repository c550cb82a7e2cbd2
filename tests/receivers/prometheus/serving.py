"""A target for scrapes, and the series in the batches that come out."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, MetricsData

from otel_zernel.batch import Batch, points
from otel_zernel.otlp.staleness import has_no_value
from tests.otlp import metrics_in, rows_in

TEXT = "text/plain; version=0.0.4"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
Write = Callable[[bytes], Awaitable[None]]


@dataclass
class PageServer:
    """An HTTP/1.1 server with one page. Each request gets the answer of this moment."""

    body: bytes = b""
    content_type: str = TEXT
    status: str = "200 OK"
    headers: dict[str, str] = field(default_factory=dict)
    stream: Callable[[Write], Awaitable[None]] | None = None
    """Writes the body in its own way."""
    delay: float = 0.0
    """Seconds before the answer."""
    requests: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    """Path and headers of each request."""
    port: int = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while first := await reader.readexactly(1):
                if first == b"\x16":  # TLS
                    writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
                    break
                head = await reader.readuntil(b"\r\n\r\n")
                await self._respond((first + head).decode(), writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _respond(self, head: str, writer: asyncio.StreamWriter) -> None:
        first, *lines = head.strip().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        self.requests.append((first.split()[1], headers))
        await asyncio.sleep(self.delay)
        length = {} if self.stream else {"Content-Length": str(len(self.body))}
        sent = {"Content-Type": self.content_type, **length, **self.headers}
        text = "".join(f"{name}: {value}\r\n" for name, value in sent.items() if value)
        writer.write(f"HTTP/1.1 {self.status}\r\n{text}\r\n".encode())

        async def write(data: bytes) -> None:
            writer.write(data)
            await writer.drain()

        if self.stream:
            await self.stream(write)
            writer.close()
        else:
            await write(self.body)


@asynccontextmanager
async def serving(body: bytes = b"", tls: Any = None, **settings: Any) -> AsyncIterator[PageServer]:
    """A running server."""
    page = PageServer(body, **settings)
    running: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        running.add(task)
        try:
            await page.answer(reader, writer)
        except asyncio.CancelledError:
            pass
        finally:
            running.discard(task)

    server = await asyncio.start_server(connected, "127.0.0.1", 0, ssl=tls)
    page.port = server.sockets[0].getsockname()[1]
    try:
        yield page
    finally:
        server.close()
        for task in list(running):
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


SeriesKey = tuple[str, frozenset[tuple[str, str]]]


def metrics_of(data: MetricsData | Batch) -> dict[str, Metric]:
    """The metrics by name."""
    data = data.metrics if isinstance(data, Batch) else data
    return {metric.name: metric for metric in metrics_in(data)}


def series_of(data: MetricsData | Batch) -> dict[SeriesKey, float]:
    """The values by name and labels, as Prometheus would store them. Series that end have None-like NaN left out."""
    found: dict[SeriesKey, float] = {}
    for row in rows_in(data.metrics if isinstance(data, Batch) else data):
        if row.value is None:
            continue
        names = {"job": "service.name", "instance": "service.instance.id"}
        labels = {label: str(row.resource.get(name, "")) for label, name in names.items()}
        labels |= {name: str(value) for name, value in row.attributes.items()}
        for name, extra, value in _samples(row.metric, row.point):
            key = (name, frozenset((labels | extra).items()))
            assert key not in found, key
            found[key] = value
    return found


def _samples(metric: Metric, point: Any) -> Iterator[tuple[str, dict[str, str], float]]:
    match metric.WhichOneof("data"):
        case "gauge" | "sum":
            yield metric.name, {}, point.as_double
        case "summary":
            yield f"{metric.name}_sum", {}, point.sum
            yield f"{metric.name}_count", {}, point.count
            for quantile_value in point.quantile_values:
                yield metric.name, {"quantile": repr(quantile_value.quantile)}, quantile_value.value
        case "histogram":
            yield f"{metric.name}_sum", {}, point.sum
            yield f"{metric.name}_count", {}, point.count
            total = 0
            for bound, count in zip([*point.explicit_bounds, float("inf")], point.bucket_counts, strict=False):
                total += count
                yield f"{metric.name}_bucket", {"le": repr(bound)}, total


def ended(data: MetricsData | Batch) -> set[str]:
    """The names of the metrics with points that end a series."""
    return {name for name, metric in metrics_of(data).items() if any(map(has_no_value, points(metric)))}
