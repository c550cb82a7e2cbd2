"""Scrapes of a page of 10,000 series with 8 labels, compared with prometheus_client's parser."""

import asyncio
import sys
import time
from functools import partial

from prometheus_client.parser import text_string_to_metric_families

from benchmarks import BenchmarkRow, cpu_seconds
from otel_zernel_receivers.prometheus.config.scrape import ScrapeLimits
from otel_zernel_receivers.prometheus.pages.text import TextReader
from otel_zernel_receivers.prometheus.points.resolving import SampleRules
from otel_zernel_receivers.prometheus.points.target_series import TargetSeries
from otel_zernel_receivers.prometheus.relabelling.renaming import Renames

SERIES = 10_000
ROUNDS = 7
_REPORT = {
    "up": 1.0,
    "scrape_duration_seconds": 0.1,
    "scrape_samples_scraped": float(SERIES),
    "scrape_samples_post_metric_relabeling": float(SERIES),
    "scrape_series_added": 0.0,
}


class Target:
    """A target without its HTTP."""

    def __init__(self) -> None:
        rules = SampleRules({"job": "job", "instance": "host:9400"}, Renames({}, ()), ScrapeLimits())
        self._series = TargetSeries(rules, {})
        self._reader = TextReader()
        self._scrapes = 0

    def scrape(self, body: bytes) -> int:
        """From the body of an answer to encoded OTLP; the number of points."""
        self._scrapes += 1
        time_ns = self._scrapes * 15_000_000_000
        page = self._reader.read(body, openmetrics=False, known=self._series.samples)
        points, _ = self._series.add(page, time_ns)
        return self._series.batch(points, _REPORT, time_ns).point_count


async def longest_pause(target: Target, bodies: list[bytes]) -> float:
    """The longest pause of the event loop in s while pages are read in a thread."""
    pauses = [0.0]

    async def watch() -> None:
        while True:
            before = time.perf_counter()
            await asyncio.sleep(0.0005)
            pauses.append(time.perf_counter() - before)

    watching = asyncio.create_task(watch())
    for body in bodies:
        await asyncio.to_thread(target.scrape, body)
    watching.cancel()
    return max(pauses)


def run() -> list[BenchmarkRow]:
    """The best of several alternating rounds, in CPU time."""
    numbers, histograms = Target(), Target()
    pages, histogram_pages = [gauges(n) for n in range(ROUNDS + 1)], [buckets(n) for n in range(ROUNDS + 1)]
    first = cpu_seconds(lambda: numbers.scrape(pages[0]))
    histograms.scrape(histogram_pages[0])
    rounds = [
        (
            cpu_seconds(partial(parse, page)),
            cpu_seconds(partial(numbers.scrape, page)),
            cpu_seconds(partial(histograms.scrape, histogram_page)),
        )
        for page, histogram_page in zip(pages[1:], histogram_pages[1:], strict=True)
    ]
    theirs, ours, of_buckets = map(min, zip(*rounds, strict=True))
    sys.setswitchinterval(0.0005)  # as the collector does
    pause = asyncio.run(longest_pause(numbers, pages[1:]))
    times = f"{theirs / ours:.1f}x ({ours * 1e3:.1f} ms, {theirs * 1e3:.0f} ms)"
    return [
        BenchmarkRow("Prometheus scrape, 10,000 gauges, to prometheus_client", times, ">= 5x", theirs >= 5 * ours),
        BenchmarkRow("Prometheus scrape, gauges", f"{SERIES / ours / 1e6:.2f} M samples per CPU-second"),
        BenchmarkRow("Prometheus scrape, histograms", f"{SERIES / of_buckets / 1e6:.2f} M samples per CPU-second"),
        BenchmarkRow(
            "Prometheus scrape, longest pause of the loop", f"{pause * 1e3:.1f} ms", "<= 10 ms", pause <= 0.01
        ),
        BenchmarkRow("Prometheus scrape, first page", f"{SERIES / first / 1e6:.2f} M samples per CPU-second"),
    ]


def parse(body: bytes) -> int:
    """prometheus_client's parser alone: the number of samples."""
    return sum(len(family.samples) for family in text_string_to_metric_families(body.decode()))


def gauges(number: int) -> bytes:
    """100 gauges with 100 series each. Every number gives other values."""
    return b"".join(
        b"# TYPE metric_%d gauge\n" % metric
        + b"".join(_LABELLED[metric] % (metric, series, (series * 1.37 + number)) for series in range(100))
        for metric in range(100)
    )


_LABELLED = [
    b'metric_%%d{%s,series="%%d"} %%f\n' % b",".join(b'label_%d="value-%d-%d"' % (n, metric, n) for n in range(7))
    for metric in range(100)
]


def buckets(number: int) -> bytes:
    """About 10,000 samples of 714 histograms with 12 buckets each."""
    lines = [b"# TYPE wait_seconds histogram\n"]
    for series in range(SERIES // 14):
        lines += [
            b'wait_seconds_bucket{handler="/api/%d",method="get",le="%s"} %d\n' % (series, bound, (index + 1) * number)
            for index, bound in enumerate(_BOUNDS)
        ]
        lines.append(b'wait_seconds_sum{handler="/api/%d",method="get"} %f\n' % (series, number * 1.5))
        lines.append(b'wait_seconds_count{handler="/api/%d",method="get"} %d\n' % (series, len(_BOUNDS) * number))
    return b"".join(lines)


_BOUNDS = [b"0.005", b"0.01", b"0.025", b"0.05", b"0.1", b"0.25", b"0.5", b"1", b"2.5", b"5", b"10", b"+Inf"]
