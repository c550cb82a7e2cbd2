"""CSV to encoded OTLP: a million rows in dcgm-exporter's layout, compared with only reading them by `csv.reader`."""

import asyncio
import csv
import json
import random
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from resource import RUSAGE_SELF, getrusage

from benchmarks import BenchmarkRow

ROWS = 1_000_000
GPUS = 247
TURNS = 3
FIELDS = (
    "GPU_UTIL",
    "MEM_COPY_UTIL",
    "ENC_UTIL",
    "DEC_UTIL",
    "FB_FREE",
    "FB_USED",
    "GPU_TEMP",
    "MEM_CLOCK",
    "SM_CLOCK",
    "POWER_USAGE",
)
MEMORY_BAR = 300


def run() -> list[BenchmarkRow]:
    """Runs both programs on one file alternately, each time in a new process. The best run of each counts.

    Rates are per CPU second: other programs on the machine affect them least. Both programs use one core.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "dcgm.csv"
        size = write(path, ROWS)
        turns = [(_measure("read", path), _measure("receive", path)) for _ in range(TURNS)]
    reading, receiving = (min(runs, key=lambda run: run["seconds"]) for runs in zip(*turns, strict=True))
    if receiving["points"] != ROWS:
        raise AssertionError(f"{ROWS} rows made {receiving['points']} points")
    ratio = reading["seconds"] / receiving["seconds"]
    rss = max(run["rss"] for _, run in turns)
    return [
        BenchmarkRow("csv.reader reading 1 M rows of dcgm CSV", f"{ROWS / reading['seconds'] / 1e3:.0f} k rows/CPU-s"),
        BenchmarkRow("csv receiver to encoded OTLP", f"{ROWS / receiving['seconds'] / 1e3:.0f} k rows/CPU-s"),
        BenchmarkRow("csv receiver / csv.reader", f"{ratio:.1f} x", "at least 1 x", ratio >= 1),
        BenchmarkRow(
            "peak RSS of the receiver's process", f"{rss:.0f} MB", f"at most {MEMORY_BAR} MB", rss <= MEMORY_BAR
        ),
        BenchmarkRow("bytes of a row in CSV and in OTLP", f"{size / ROWS:.0f} -> {receiving['bytes'] / ROWS:.0f}"),
    ]


def write(path: Path, rows: int) -> int:
    """Writes scrapes of 247 GPUs with 10 metrics each, as recorded from dcgm-exporter. Returns the size in bytes."""
    chance = random.Random(1)
    series = [_series(chance, field, gpu) for field in FIELDS for gpu in range(GPUS)]
    start = datetime(2025, 7, 18, 20, 42, 34, tzinfo=UTC)
    header = "timestamp,metric_name,gpu_id,device,uuid,modelName,Hostname,container,pod,namespace,value,labels_raw\n"
    with path.open("w") as file:
        file.write(header)
        for scrape in range(-(-rows // len(series))):
            stamp = f"{start + timedelta(seconds=15 * scrape):%Y-%m-%dT%H:%M:%SZ}"
            left = min(len(series), rows - scrape * len(series))
            file.writelines(
                f'"{stamp}",{before}"{chance.random() * 700:.6g}",{after}' for before, after in series[:left]
            )
    return path.stat().st_size


def _series(chance: random.Random, field: str, gpu: int) -> tuple[str, str]:
    """The columns before and after the value."""
    random_hex = f"{random.Random(gpu).getrandbits(128):032x}"
    uuid = f"GPU-{random_hex[:8]}-{random_hex[8:12]}-{random_hex[12:16]}-{random_hex[16:20]}-{random_hex[20:]}"
    name, host, index, model = (
        f"DCGM_FI_DEV_{field}",
        f"mtv5-dgx1-hgpu-{gpu // 8:03d}",
        gpu % 8,
        "NVIDIA H100 80GB HBM3",
    )
    labels = {
        "DCGM_FI_DRIVER_VERSION": "535.129.03",
        "Hostname": host,
        "UUID": uuid,
        "__name__": name,
        "device": f"nvidia{index}",
        "gpu": str(index),
        "instance": f"{host}:9400",
        "job": "dgx_dcgm_exporter",
        "modelName": model,
    }
    raw = ",".join(f'{label}=""{value}""' for label, value in labels.items())
    return f'"{name}","{index}","nvidia{index}","{uuid}","{model}","{host}","","","",', f'"{raw}"\n'


def _measure(program: str, path: Path) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.csv_to_otlp", program, str(path)], check=True, stdout=subprocess.PIPE
    )
    return dict(json.loads(done.stdout))


def _read(path: Path) -> dict[str, float]:
    start = time.process_time()
    with path.open(newline="") as file:
        rows = sum(1 for _ in csv.reader(file))
    return {"seconds": time.process_time() - start, "points": rows - 1}


async def _receive(path: Path) -> dict[str, float]:
    """Measures from the start of `run` to the last encoded batch. Memory includes imports, time does not."""
    import pyarrow.csv  # noqa: F401

    from otel_zernel.batch import Batch
    from otel_zernel.clock import SystemClock
    from otel_zernel.testing import make_context
    from otel_zernel_receivers.csv import CsvReceiver

    total = {"points": 0, "bytes": 0}

    async def count(batch: Batch, *, transport: str = "") -> None:
        total["points"] += batch.point_count
        total["bytes"] += len(batch.bytes_of("metrics"))

    config = CsvReceiver.Config.model_validate({"files": [str(path)]})
    start = time.process_time()
    await CsvReceiver(config, make_context(clock=SystemClock())).run(count)
    seconds = time.process_time() - start
    # KiB on Linux, bytes on macOS
    rss = getrusage(RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return {"seconds": seconds, "rss": rss / 1e6, **total}


if __name__ == "__main__":
    file = Path(sys.argv[2])
    print(json.dumps(_read(file) if sys.argv[1] == "read" else asyncio.run(_receive(file))))
