"""One collector sends to many odd backends at once: every point is sent, counted as lost, or still in a queue.

Backends are down, slow, throttle, reset connections, answer half, garbage or 100 MB, redirect, or have an expired
certificate. None of them delays the others, and the memory of the collector stays small.
"""

import asyncio
import json
import re
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import httpx
import psutil
import pytest

from otel_zernel.testing import until
from tests.collectors import collector
from tests.exporters.otlp.certificates import Authority
from tests.reliability.odd_backends import NEVER, PERMANENT, Backends

TABLE = Path(__file__).parents[2] / "docs/development/soak/backends.csv"
ROWS, BATCH = 120, 20
LARGEST_MIB = 400
"""Resident memory with 40 exporters. Without limits on answers, it is over 1 GiB."""

SOME_LOST = {"exhausted_without_retry_info": 3 * BATCH}
"""Points that a backend may refuse for good before it recovers."""


def configuration(folder: Path, backends: Backends, port: int) -> str:
    rows = (f"2026-01-01T00:00:{row % 60:02}Z,{row},node,{row % 101}\n" for row in range(ROWS))
    (folder / "in.csv").write_text("timestamp,gpu_id,hostname,gpu_utilization\n" + "".join(rows))
    return json.dumps(
        {
            "receivers": {
                "csv": {"files": [f"{folder}/in.csv"], "layout": "wide", "batch_size": BATCH, "follow": True},
            },
            "exporters": backends.exporters,
            "service": {
                "shutdown_timeout": "1s",
                "telemetry": {
                    "metrics": {
                        "level": "normal",
                        "readers": [{"pull": {"exporter": {"prometheus": {"host": "127.0.0.1", "port": port}}}}],
                    }
                },
                "pipelines": {"metrics": {"receivers": ["csv"], "exporters": list(backends.exporters)}},
            },
        }
    )


class Measured:
    """A running collector and its own metrics."""

    def __init__(self, process: psutil.Popen, port: int) -> None:
        self.process = process
        self.memory: list[tuple[float, float]] = []
        """Seconds since the start of the process, and its resident memory in MiB."""
        self.counts: dict[str, Counter[str]] = {}
        """Points by metric and exporter."""
        self.rejected = Counter[str]()
        """Points that the backend rejected in requests that it accepted, by exporter."""
        self._page = f"http://127.0.0.1:{port}/metrics"

    async def read(self) -> None:
        """Reads the metrics and the memory."""
        seconds = time.time() - self.process.create_time()
        self.memory.append((seconds, self.process.memory_info().rss / 2**20))
        async with httpx.AsyncClient(trust_env=False) as client:
            page = (await client.get(self._page, timeout=30)).text
        self.counts, self.rejected = {}, Counter()
        for name, labels, value in re.findall(r"^(otelcol_\w+|zernel_\w+)\{(.*)\} (\S+)$", page, re.MULTILINE):
            if exporter := re.search(r'(?:exporter|otelcol_component_id|component)="(?:exporters::)?([^"]+)"', labels):
                self.counts.setdefault(name, Counter())[exporter[1]] += round(float(value))
                if 'reason="partial_success"' in labels:
                    self.rejected[exporter[1]] += round(float(value))

    @property
    def largest(self) -> float:
        """The largest resident memory that was seen, in MiB."""
        return max(rss for _, rss in self.memory)

    def of(self, exporter: str, outcome: str) -> int:
        named = (count for name, count in self.counts.items() if name.startswith(f"otelcol_exporter_{outcome}_metric"))
        return sum(count[exporter] for count in named)

    def settled(self, exporter: str) -> int:
        """Points that were sent or given up."""
        return self.of(exporter, "sent") + self.of(exporter, "send_failed")


async def wait_until_settled(measured: Measured, exporters: set[str]) -> None:
    while any(measured.settled(exporter) < ROWS for exporter in exporters):
        await asyncio.sleep(0.5)
        await measured.read()


@pytest.mark.timeout(240)
async def test_every_point_for_every_odd_backend_is_sent_or_counted_or_queued(
    tmp_path: Path, unused_tcp_port_factory: Callable[[], int]
) -> None:
    await campaign(tmp_path, unused_tcp_port_factory)


@pytest.mark.soak
@pytest.mark.timeout(240)
async def test_the_memory_meanwhile_is_bounded_and_kept_for_the_documents(
    tmp_path: Path, unused_tcp_port_factory: Callable[[], int]
) -> None:
    measured = await campaign(tmp_path, unused_tcp_port_factory)
    rows = (f"{seconds:.1f},{rss:.1f}\n" for seconds, rss in measured.memory)
    TABLE.parent.mkdir(exist_ok=True)
    TABLE.write_text("seconds,rss_mib\n" + "".join(rows))


async def campaign(tmp_path: Path, port_factory: Callable[[], int]) -> Measured:
    """Runs all backends, and checks the counts of each."""
    port = port_factory()
    authority, backends = Authority(tmp_path), Backends()
    expired = authority.issue("localhost", expired=True).server_context()
    async with backends.serve(expired, authority.ca_file):
        settings = configuration(tmp_path, backends, port)
        async with collector(tmp_path, settings) as running:
            measured = Measured(running.process, port)
            kept = "otlp_http/down_kept"
            await until(lambda: "Everything is ready" in running.log, within=60)
            await measured.read()
            await asyncio.wait_for(wait_until_settled(measured, backends.exporters.keys() - {kept}), 200)
            running.process.send_signal(signal.SIGTERM)
            await running.ended()
    text = running.log
    sys.stdout.write(f"{report(measured, backends)}\nresident memory: {measured.largest:.0f} MiB at most\n")
    for exporter in backends.exporters.keys() - {kept}:
        check(exporter, measured, backends)
    assert measured.settled(kept) == 0
    for exporter in ("otlp_http/partial", "otlp_grpc/partial"):
        assert measured.rejected[exporter] == backends.tallies[exporter].requests  # a point of each
    assert f"{kept} could not deliver {ROWS} metric points" in text
    assert measured.largest < LARGEST_MIB
    return measured


def check(exporter: str, measured: Measured, backends: Backends) -> None:
    """The collector's counts are exact, and agree with those of the backend."""
    name = exporter.partition("/")[2]
    sent, failed = measured.of(exporter, "sent"), measured.of(exporter, "send_failed")
    acknowledged = backends.tallies[exporter].acknowledged if exporter in backends.tallies else set()
    assert sent + failed == ROWS, exporter
    assert len(acknowledged) == sent, exporter
    if name in PERMANENT | NEVER:
        assert failed == ROWS, exporter
    else:
        assert failed <= SOME_LOST.get(name, 0), exporter


def report(measured: Measured, backends: Backends) -> str:
    lines = [f"{'exporter':45} {'sent':>6} {'lost':>6} {'received':>8} {'requests':>8}"]
    for exporter in sorted(backends.exporters):
        sent, failed = measured.of(exporter, "sent"), measured.of(exporter, "send_failed")
        tally = backends.tallies.get(exporter)
        lines.append(
            f"{exporter:45} {sent:6} {failed:6} {tally.received if tally else 0:8} {tally.requests if tally else 0:8}"
        )
    return "\n".join(lines)
