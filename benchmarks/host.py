"""The cost of watching a machine with many processes. psutil stands beside it: it does less, without rates and OTLP."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import psutil

from benchmarks import BenchmarkRow, cpu_seconds
from otel_zernel.clock import SystemClock
from otel_zernel.component import PartialScrape
from otel_zernel.testing import make_context
from otel_zernel_receivers.host import HostReceiver
from otel_zernel_receivers.host.config import ScrapersConfig

PROCESSES, SCRAPES = 256, 20
_SLEEPER = f"import os, signal\nfor _ in range({PROCESSES} - 1):\n    if not os.fork(): break\nsignal.pause()"


def run() -> list[BenchmarkRow]:
    """CPU time of a scrape: without single processes, with 256 of them, and of psutil for all processes."""
    machine = _cost(_scraping(dict.fromkeys(set(ScrapersConfig.model_fields) - {"process"})))
    with _sleepers():
        every = _cost(_scraping(dict.fromkeys(ScrapersConfig.model_fields)))
        of_psutil = _cost(_by_psutil)
        count = len(psutil.pids())
    return [
        BenchmarkRow(
            "host: a scrape without single processes", f"{machine * 1e3:.1f} ms of CPU", "< 10 ms", machine < 0.010
        ),
        BenchmarkRow(
            f"host: a scrape with {PROCESSES} processes ({count} on the machine)",
            f"{every * 1e3:.1f} ms of CPU",
            "< 100 ms",
            every < 0.100,
        ),
        BenchmarkRow(f"host: psutil, eight values of all {count} processes", f"{of_psutil * 1e3:.1f} ms of CPU"),
    ]


@contextmanager
def _sleepers() -> Iterator[None]:
    """256 processes that sleep."""
    with subprocess.Popen([sys.executable, "-c", _SLEEPER], start_new_session=True) as process:
        group = psutil.Process(process.pid)
        while len(group.children(recursive=True)) < PROCESSES - 1:
            time.sleep(0.05)
        try:
            yield
        finally:
            for child in group.children(recursive=True):
                child.kill()
            process.kill()


def _cost(scrape: Callable[[], None]) -> float:
    """CPU seconds of a scrape, after two others."""
    for _ in range(2):
        scrape()
    return cpu_seconds(scrape, SCRAPES)


def _scraping(scrapers: dict[str, None]) -> Callable[[], None]:
    config = HostReceiver.Config.model_validate({"scrapers": scrapers})
    receiver = HostReceiver(config, make_context(clock=SystemClock()))

    def scrape() -> None:
        with suppress(PartialScrape):  # there are more processes than are reported
            receiver.scrape()

    return scrape


def _by_psutil() -> None:
    wanted = ["name", "cpu_times", "memory_info", "num_threads", "io_counters", "status", "ppid", "create_time"]
    for _ in psutil.process_iter(wanted):
        pass
