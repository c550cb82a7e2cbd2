"""The live page in Chromium: 64 ranks x 200 steps, 10 changes a second, and the frames that it draws meanwhile."""

import shutil
import tempfile
import threading
import time
from pathlib import Path

from benchmarks import BenchmarkRow
from tests.commands.why.chromium import browsing
from tests.exporters.live.live_runs import SECOND
from tests.exporters.live.page.generated_job import GeneratedJob
from tests.exporters.live.page.served_page import ServedPage, served_page

RANKS = 64
PAST = 22
MEASURED = 6
_LONG_MS = 50
"""Browsers call a task above this a long one: it delays the input of the user."""
_COUNT = """new Promise((done) => {
    const times = [], longs = [], seen = new Set(), began = performance.now();
    new PerformanceObserver((list) => longs.push(...list.getEntries().map((one) => one.duration)))
        .observe({ type: "longtask" });
    const frame = (now) => {
        times.push(now);
        seen.add(document.querySelector("#line").dataset.to);
        if (now - began < %d) requestAnimationFrame(frame);
        else done([times.length / (now - began) * 1000, seen.size / (now - began) * 1000,
            Math.max(0, ...longs), longs.length]);
    };
    requestAnimationFrame(frame);
})"""


def run() -> list[BenchmarkRow]:
    """Frames and redraws per second, and the longest task of the page."""
    if shutil.which("chromium") is None:
        return [BenchmarkRow("live page: frames", "chromium is not installed")]
    job = GeneratedJob(RANKS, time.time_ns() - PAST * SECOND)
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        served_page(job.seconds(PAST)) as page,
        browsing(Path(folder)) as tab,
    ):
        tab.open(page.url, 1280, 900, "light")
        tab.evaluate("document.querySelector('button[data-do=all]').click()")
        stop = threading.Event()
        feeding = threading.Thread(target=_feed, args=(page, job, stop))
        feeding.start()
        time.sleep(1)
        frames, redraws, longest, count = tab.evaluate(_COUNT % (MEASURED * 1000))
        stop.set()
        feeding.join()
    name = f"live page: {RANKS} ranks x 200 steps"
    return [
        BenchmarkRow(f"{name}, frames", f"{frames:.0f}/s", "> 30/s", frames > 30),
        BenchmarkRow(f"{name}, states drawn", f"{redraws:.1f}/s"),
        BenchmarkRow(f"{name}, tasks > {_LONG_MS} ms", f"{count}, longest {longest:.0f} ms"),
    ]


def _feed(page: ServedPage, job: GeneratedJob, stop: threading.Event) -> None:
    """A tenth of each second's batches at a time, as the steps happen."""
    number, began = PAST, time.monotonic()
    while not stop.is_set():
        batches = list(job.second(number))
        for tenth in range(10):
            page.add(batches[len(batches) * tenth // 10 : len(batches) * (tenth + 1) // 10])
            stop.wait(max(0.0, began + (number - PAST) + (tenth + 1) / 10 - time.monotonic()))
        number += 1
