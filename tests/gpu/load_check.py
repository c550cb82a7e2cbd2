"""`make gpu-check`: compares the nvml receiver with known loads of the GPU, and with the GPM of `nvidia-smi dmon`."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from otel_zernel_receivers.nvml.driver.library import NvmlLibrary
from tests.gpu.check import found_gpus, found_library
from tests.gpu.ebpf_check import PYTHON, expect, has_torch
from tests.gpu.load_values import LoadResult, Row, expected_of_dmon, expected_of_load, scraped, table
from tests.gpu.watched import ROOT

REPORT = ROOT / "docs" / "gpu_check_loads.txt"
LOADS = (
    "idle",
    "bf16 products",
    "fp32 products",
    "fp64 products",
    "fp32 polynomial",
    "fp64 polynomial",
    "copies in the GPU",
    "copies to the GPU",
    "copies from the GPU",
    "idle again",
)
SECONDS, BEGIN, WATCHED = 3.6, 0.4, 2.4
"""Length of a load, time before the first scrape, and time between the two scrapes."""
GPM = "1,2,3,4,5,10,11,12,13,20,21"
"""The NVML_GPM_METRIC_… that `nvidia-smi dmon` prints."""


def main(report: Path = REPORT) -> int:
    """Prints the comparison and writes it to `report`. Returns 1 if a value differs, else 0, also without a GPU."""
    if (library := found_library()) is None:
        return 0
    if not has_torch("torch.cuda.is_available()"):
        print(f"Nothing to check: {PYTHON} has no PyTorch with CUDA; see tests/gpu/README.md.")
        return 0
    rows = list(measured(library))
    differing = sum(not row.agree for row in rows)
    head = f"driver {library.driver_version}, {datetime.now(UTC):%Y-%m-%d}, load: value: expected | receiver"
    text = "\n".join([head, f"{len(rows)} values, {differing} differ", *table(rows)]) + "\n"
    print(text, end="")
    report.write_text(text)
    return int(differing > 0)


def measured(library: NvmlLibrary) -> Iterator[Row]:
    """The rows of all loads."""
    gpu = found_gpus(library)[0]
    width = library.nvml.nvmlDeviceGetMemoryBusWidth(library.nvml.nvmlDeviceGetHandleByIndex(0))
    with loads() as process:
        for load in LOADS:
            print(f"{load.removesuffix(' again')} {SECONDS}", file=process.stdin, flush=True)
            expect(process, "started")
            time.sleep(BEGIN)
            before = scraped(gpu.scrape()), time.monotonic()
            dmon = subprocess.Popen(
                ["nvidia-smi", "dmon", "-i", "0", "--gpm-metrics", GPM, "-d", "1", "-c", "3"],
                stdout=subprocess.PIPE,
                text=True,
            )
            time.sleep(WATCHED)
            after = scraped(gpu.scrape()), time.monotonic()
            printed = dmon.communicate()[0]
            did: dict[str, Any] = json.loads(expect(process, "{"))
            result = LoadResult(load, did, before[0], after[0], after[1] - before[1], process.pid, width)
            yield from expected_of_load(result)
            yield from expected_of_dmon(result, printed)
    ended: Mapping[str, float] = scraped(gpu.scrape())
    left = [name for name in ended if name.startswith("zernel.gpu.process.memory.usage") and f"{process.pid}" in name]
    yield Row("after the job", "series of its process", 0.0, float(len(left)), agree=not left)


@contextmanager
def loads() -> "Iterator[subprocess.Popen[str]]":
    """The program with the loads, ready."""
    pipe = subprocess.PIPE
    with subprocess.Popen([PYTHON, "-m", "tests.gpu.loads"], cwd=ROOT, text=True, stdin=pipe, stdout=pipe) as process:
        expect(process, "ready")
        yield process
        assert process.stdin
        process.stdin.close()
        process.wait()
        time.sleep(0.5)


if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:])))
