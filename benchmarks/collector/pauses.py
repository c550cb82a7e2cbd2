"""The longest pauses of the event loop while a thread works on something large: a received request, a page.

Python's lock passes on only between two calls into C. Another program on the machine lengthens a pause, so each value
is the shortest of several rounds.
"""

import asyncio
import gc
import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial

from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from benchmarks import BenchmarkRow
from benchmarks.peers.otlp import hostile_messages, request_of
from benchmarks.prometheus.page import otlp
from benchmarks.prometheus.scrape import Target, gauges
from otel_zernel.batch.parsing import parse
from otel_zernel.batch.pieces import count_encoded
from otel_zernel.errors import DecodeError
from otel_zernel.otlp.json import parse_json
from otel_zernel_libraries.prometheus import Format, Page

ROUNDS = 3
BAR_MS, HOSTILE_BAR_MS = 10.0, 100.0
"""The project's limit for work on the event loop, and that for the delay of other requests beside hostile ones."""
_TICK = 0.0005
_WARM_UP = 0.02
_METRIC = (
    b'{"resourceMetrics":[{"scopeMetrics":[{"metrics":[{"histogram":{"dataPoints":[{"explicitBounds":[%s]}]}}]}]}]}'
)

Work = Callable[[], object]


def run() -> list[BenchmarkRow]:
    """All rows. Takes 20 s."""
    sys.setswitchinterval(_TICK)  # as the collector does
    gc.collect()
    gc.freeze()
    return [_row(name, make, bar) for name, make, bar in _works()]


def _works() -> Iterator[tuple[str, Callable[[], Work], float]]:
    """The name, a function that prepares the work of one round, and the bar."""
    for number, message in enumerate(hostile_messages()):
        yield f"hostile OTLP {number}, 4 MB", partial(_checked, message), HOSTILE_BAR_MS
    request = request_of(14_000)
    yield "OTLP, 14,000 points, 4 MB", partial(_checked, request), BAR_MS
    for points in (6_000, 30_000):
        document = json.dumps(MessageToDict(MetricsData.FromString(request_of(points)))).encode()
        yield f"OTLP/JSON, {len(document) / 1e6:.0f} MB", partial(_decoded, document), HOSTILE_BAR_MS
    for name, numbers in (("numbers", b"1," * 9_000_000 + b"1"), ("texts", b'"1",' * 4_500_000 + b'"1"')):
        yield f"hostile OTLP/JSON of {name}, 18 MB", partial(_decoded, _METRIC % numbers), HOSTILE_BAR_MS
    page = otlp()
    yield "Prometheus page, first 10,000 series", lambda: lambda: Page().update(page, 0), BAR_MS
    for format_, name in ((Format(), "text"), (Format(protobuf=True), "protobuf")):
        yield f"Prometheus page, first {name} of them", partial(_rendered, page, format_), BAR_MS
    encoded = page.SerializeToString()
    yield "full parse of 10,000 points", lambda: partial(parse, MetricsData, encoded), BAR_MS
    body = gauges(0)
    yield "Prometheus scrape, first page of them", lambda: lambda: Target().scrape(body), BAR_MS


def _checked(encoded: bytes) -> Work:
    def work() -> None:
        with suppress(DecodeError):
            count_encoded("metrics", encoded)

    return work


def _decoded(document: bytes) -> Work:
    def work() -> None:
        with suppress(DecodeError):
            parse_json(MetricsData, document).SerializeToString()

    return work


def _rendered(message: MetricsData, format_: Format) -> Work:
    page = Page()
    page.update(message, 0)
    return lambda: page.render(format_, 0)


def _row(name: str, make: Callable[[], Work], bar: float) -> BenchmarkRow:
    longest, whole = min(asyncio.run(_pause(make())) for _ in range(ROUNDS))
    value = f"{longest * 1e3:.1f} ms of {whole * 1e3:.0f} ms"
    return BenchmarkRow(f"pause: {name}", value, f"<= {bar:g} ms", longest * 1e3 <= bar)


async def _pause(work: Work) -> tuple[float, float]:
    """The longest pause of the event loop, and the duration of the work in a thread; both in s."""
    pauses = [0.0]

    async def watch() -> None:
        while True:
            before = time.perf_counter()
            await asyncio.sleep(_TICK)
            pauses.append(time.perf_counter() - before)

    watching = asyncio.create_task(watch())
    await asyncio.sleep(_WARM_UP)
    pauses[:] = [0.0]
    begin = time.perf_counter()
    await asyncio.to_thread(work)
    whole = time.perf_counter() - begin
    watching.cancel()
    return max(pauses), whole
