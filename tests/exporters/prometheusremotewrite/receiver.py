"""A receiver of remote write that keeps samples by the rules of Prometheus: in order, and 1.0 all or nothing."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from otel_zernel.types import Address
from otel_zernel_libraries.serving.serving import serve
from tests.exporters.prometheusremotewrite.decoding import (
    Decoded,
    Labels,
    decoded_v1,
    decoded_v2,
    decompressed,
    name_of,
)

V2 = "application/x-protobuf;proto=io.prometheus.write.v2.Request"
OUT_OF_ORDER, DUPLICATE = "out of order sample", "duplicate sample for timestamp"


@dataclass
class WriteReceiver:
    """Stores samples. It sends the configured answers first, without storing anything."""

    kind: Literal["new", "old", "strict", "unsupported"] = "new"
    """How it answers 2.0. `old` takes it for an empty request of 1.0, as Prometheus 2.42 does. `strict` answers 400,
    and `unsupported` 415."""
    native: bool = True
    answers: deque[Response] = field(default_factory=deque)
    headers: list[dict[str, str]] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    requests: list[Decoded] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    samples: dict[Labels, list[tuple[int, float]]] = field(default_factory=dict)
    histograms: dict[Labels, list[Any]] = field(default_factory=dict)
    meeting: int = 0
    """Answer nothing until so many requests are there at the same time."""
    met: asyncio.Event = field(default_factory=asyncio.Event)
    concurrent: int = 0
    most_concurrent: int = 0

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[str]:
        """Serves on localhost; yields the URL."""
        app = Starlette(routes=[Route("/api/v1/write", self._write, methods=["POST"])])
        async with serve(app, Address("localhost", 0), "test") as address:
            yield f"http://localhost:{address.port}/api/v1/write"

    def named(self, name: str) -> dict[Labels, list[tuple[int, float]]]:
        """The samples of the series with this name, by their other labels."""
        return {
            tuple(pair for pair in labels if pair[0] != "__name__"): samples
            for labels, samples in self.samples.items()
            if name_of(labels) == name
        }

    async def _write(self, request: Request) -> Response:
        self.concurrent += 1
        self.most_concurrent = max(self.most_concurrent, self.concurrent)
        try:
            body = await request.body()
            if self.concurrent >= self.meeting:
                self.met.set()
            await self.met.wait()
            return self._answer(dict(request.headers), decompressed(body))
        finally:
            self.concurrent -= 1

    def _answer(self, headers: dict[str, str], body: bytes) -> Response:
        assert headers["content-encoding"] == "snappy"
        assert headers["user-agent"].startswith("otel-zernel/")
        is_new = headers["content-type"] == V2
        assert headers["x-prometheus-remote-write-version"] == ("2.0.0" if is_new else "0.1.0")
        self.headers.append(headers)
        self.sizes.append(len(body))
        self.versions.append(2 if is_new else 1)
        decoded = decoded_v2(body) if is_new else decoded_v1(body)
        self.requests.append(decoded)
        if self.answers:
            return self.answers.popleft()
        if is_new and self.kind != "new":
            return Response(status_code={"old": 204, "strict": 400, "unsupported": 415}[self.kind])
        return self._store_new(decoded) if is_new else self._store_old(decoded)

    def _store_new(self, decoded: Decoded) -> Response:
        errors, written = self._store(decoded)
        names = ("samples", "histograms", "exemplars")
        counts = (*written, decoded.counts[2])
        headers = {
            f"X-Prometheus-Remote-Write-{name}-Written": str(count) for name, count in zip(names, counts, strict=True)
        }
        return Response("\n".join(errors), 400 if errors else 204, headers)

    def _store_old(self, decoded: Decoded) -> Response:
        if decoded.histograms and not self.native:
            return Response("native histograms are disabled", 500)
        before = {labels: list(known) for labels, known in self.samples.items()}
        histograms = {labels: list(known) for labels, known in self.histograms.items()}
        errors, _ = self._store(decoded)
        if errors:
            self.samples, self.histograms = before, histograms
        return Response(errors[0] if errors else "", 400 if errors else 204)

    def _store(self, decoded: Decoded) -> tuple[list[str], tuple[int, int]]:
        errors: list[str] = []
        written = [0, 0]
        for labels, samples in decoded.samples.items():
            known = self.samples.setdefault(labels, [])
            for time_ms, value in samples:
                if known and time_ms < known[-1][0]:
                    errors.append(OUT_OF_ORDER)
                elif known and time_ms == known[-1][0]:
                    errors += [] if known[-1][1] == value else [DUPLICATE]
                    written[0] += known[-1][1] == value
                else:
                    known.append((time_ms, value))
                    written[0] += 1
        for labels, histograms in decoded.histograms.items():
            kept = self.histograms.setdefault(labels, [])
            for histogram in histograms:
                if kept and histogram.timestamp < kept[-1].timestamp:
                    errors.append(OUT_OF_ORDER)
                elif not kept or histogram.timestamp > kept[-1].timestamp:
                    kept.append(histogram)
                    written[1] += 1
        return errors, (written[0], written[1])
