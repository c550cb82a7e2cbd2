"""The journal of `file_storage`: batches of 100 kB that are appended, synced, read, and removed.

The ratios depend on the disk: `fdatasync` alone is measured in the same run.
"""

import asyncio
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter, process_time

from benchmarks import BenchmarkRow
from otel_zernel.clock import SystemClock
from otel_zernel_extensions.file_storage.journal.journal import FileJournal

SIZE = 100_000
"""Bytes of a batch of 360 points with 8 attributes each."""
SECONDS = 2.0
"""For each row."""


def data_syncs(folder: Path) -> float:
    """Writes of one batch, each followed by `fdatasync`, per second: what the disk does without a journal."""
    data, count, started = os.urandom(SIZE), 0, perf_counter()
    file = os.open(folder / "plain", os.O_WRONLY | os.O_CREAT)
    while perf_counter() - started < SECONDS:
        os.write(file, data)
        os.fdatasync(file)
        count += 1
    os.close(file)
    return count / (perf_counter() - started)


async def rates(folder: Path, senders: int) -> tuple[float, float, float]:
    """Batches per second, CPU microseconds a batch, and the p99 of an append in ms, with concurrent senders."""
    journal = await FileJournal.open(folder, SystemClock())
    data, waits = os.urandom(SIZE), []
    started, cpu = perf_counter(), process_time()

    async def send() -> None:
        while (begun := perf_counter()) < started + SECONDS:
            record = await journal.append("metrics", data, 360)
            waits.append(perf_counter() - begun)
            assert journal.read(record) == data
            journal.remove(record)

    await asyncio.gather(*(send() for _ in range(senders)))
    elapsed, used = perf_counter() - started, process_time() - cpu
    await journal.close()
    waits.sort()
    return len(waits) / elapsed, used / len(waits) * 1e6, waits[int(len(waits) * 0.99)] * 1e3


def run() -> Iterator[BenchmarkRow]:
    folder = Path(tempfile.mkdtemp(dir=os.environ.get("ZERNEL_BENCH_DISK", Path.cwd())))
    try:
        plain = data_syncs(folder)
        yield BenchmarkRow("Batches of 100 kB: write and fdatasync, no journal", f"{plain:,.0f}/s")
        for senders in (1, 8, 32):
            rate, cost, wait = asyncio.run(rates(folder / str(senders), senders))
            row = f"  journal, {senders} concurrent: append, read, remove"
            value = f"{rate:,.0f}/s, {cost:.0f} us CPU, p99 {wait:.0f} ms"
            yield BenchmarkRow(row, value, "at most 150 us CPU" if senders > 1 else "", cost <= 150 or senders == 1)
    finally:
        shutil.rmtree(folder)
