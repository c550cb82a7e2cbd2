"""The cost of watching 8 H100: our receiver, nvitop's library, and polling `nvidia-smi -q -x`, on the same stand-in.

The stand-in answers immediately: only the cost of the client is measured. Polling runs and parses `nvidia-smi -q -x` at
every scrape, as telegraf's nvidia_smi input does. Here that program is tests/gpu/nvidia_smi.c on the same stand-in. Its
CPU time counts, without the time to read the stand-in's boards from their file. The real one does more at its start.
"""

import ctypes
import os
import resource
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import psutil

from benchmarks import BenchmarkRow

TESTS = Path(__file__).parent.parent / "tests"
STANDIN = TESTS / "receivers" / "nvml" / "standin"
SCENARIO = TESTS / "receivers" / "nvml" / "scenarios" / "h100x8.txt"
GPUS, SCRAPES, WARM_UP = 8, 60, 5
NEW_SAMPLES = {0: 100, 1: 60, 2: 60, 5: 100, 6: 100}
"""Samples that the driver adds to each buffer between two scrapes."""


Count = Callable[[], int]
"""Counts the values of a scrape, outside of the measurement."""


@dataclass(frozen=True, slots=True)
class ScrapeCost:
    """The cost of a scrape of 8 GPUs: CPU seconds, resident bytes, and the number of values."""

    cpu: float
    memory: float
    values: float

    @property
    def per_value(self) -> float:
        """CPU seconds per value."""
        return self.cpu / self.values

    def __str__(self) -> str:
        return f"{self.cpu * 1e3:.1f} ms, {self.values:.0f} values, {self.memory / 2**20:.0f} MiB"


def run() -> list[BenchmarkRow]:
    """CPU time of a scrape of 8 GPUs, number of values and resident memory, each in its own process."""
    with tempfile.TemporaryDirectory() as folder:
        library = _build(Path(folder))
        ours, quiet, nvitop, polling = (
            _measured(client, library) for client in ("receiver", "receiver_without_samples", "nvitop", "polling")
        )
    rows = [
        BenchmarkRow("nvml: a scrape of 8 GPUs, all defaults", str(ours)),
        BenchmarkRow("nvml: ... with no new samples in the buffers", str(quiet)),
        BenchmarkRow("nvml: the same by nvitop's snapshots", str(nvitop)),
        BenchmarkRow("nvml: the same by running and parsing `nvidia-smi -q -x`", str(polling)),
    ]
    if quiet and nvitop:
        ratio = quiet.per_value / nvitop.per_value
        rows.append(BenchmarkRow("nvml: CPU time per value, relative to nvitop", f"{ratio:.2f} x", "< 1 x", ratio < 1))
    if quiet and polling:
        ratio = quiet.per_value / polling.per_value
        rows.append(BenchmarkRow("nvml: CPU time per value, relative to nvidia-smi", f"{ratio:.2f} x"))
    return rows


def _build(folder: Path) -> Path:
    library = folder / "libnvidia-ml.so.1"
    shared = ["-shared", "-fPIC", f"-Wl,-soname,{library.name}", *map(str, STANDIN.glob("*.c")), "-lpthread"]
    program = [str(TESTS / "gpu" / "nvidia_smi.c"), f"-L{folder}", f"-l:{library.name}", f"-Wl,-rpath,{folder}"]
    for made, flags in ((library, shared), (folder / "nvidia-smi", program)):
        subprocess.run(["cc", "-std=gnu11", "-O2", "-o", str(made), *flags], check=True)
    return library


def _measured(client: str, library: Path) -> ScrapeCost | None:
    """The cost of one client; None if it is not installed."""
    command = [sys.executable, "-c", f"from benchmarks import nvml; nvml.measure({client!r}, {str(library)!r})"]
    environ = {**os.environ, "NVML_STANDIN": str(SCENARIO)}
    out = subprocess.run(command, env=environ, check=True, capture_output=True, text=True).stdout.split()
    return ScrapeCost(*map(float, out)) if out else None


def measure(client: str, library: str) -> None:
    """Prints the cost of one client; nothing if it is not installed. Runs in its own process."""
    standin = ctypes.CDLL(library)
    free = _to_read_boards(standin) if client == "polling" else 0.0
    ways: dict[str, Callable[[], Callable[[], Count] | None]] = {
        "receiver": _receiver,
        "receiver_without_samples": _receiver,
        "nvitop": _nvitop,
        "polling": partial(_polling, Path(library).parent / "nvidia-smi"),
    }
    scrape = ways[client]()
    if scrape is None:
        return
    spent = 0.0
    values: Count = int
    for number in range(WARM_UP + SCRAPES):
        if client != "receiver_without_samples":
            standin.standin_apply(_new_samples(number).encode())
        began = _cpu()
        values = scrape()
        spent += _cpu() - began if number >= WARM_UP else 0.0
    print(spent / SCRAPES - free, psutil.Process().memory_info().rss, values())


def _cpu() -> float:
    """CPU seconds of this process and its children."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def _to_read_boards(standin: ctypes.CDLL) -> float:
    """CPU seconds that the stand-in needs to read its scenario."""
    began = _cpu()
    for _ in range(SCRAPES):
        standin.standin_load(str(SCENARIO).encode())
    return (_cpu() - began) / SCRAPES


def _new_samples(scrape: int) -> str:
    lines = [f"gpu 0-{GPUS - 1}"]
    for kind, count in NEW_SAMPLES.items():
        first = 2_000_000 + scrape * 10_000_000
        lines += [f"Samples {kind} += {first + one * 100_000} {50 + one % 50}" for one in range(count)]
    return "\n".join(lines)


def _receiver() -> Callable[[], Count]:
    from otel_zernel.clock import SystemClock
    from otel_zernel.testing import make_context
    from otel_zernel_receivers.nvml.config import NvmlConfig
    from otel_zernel_receivers.nvml.driver.events import XidCounts
    from otel_zernel_receivers.nvml.driver.library import NvmlLibrary
    from otel_zernel_receivers.nvml.gpus.gpu import GpuRegistry, count_gpus, find_gpu

    library, context = NvmlLibrary(), make_context(clock=SystemClock())
    registry = GpuRegistry(NvmlConfig(), context, XidCounts(context.clock.time_ns))
    find_gpus = (find_gpu(library, index, "node") for index in range(count_gpus(library)))
    gpus = [registry.create(library, gpu) for gpu in find_gpus if gpu]

    def scrape() -> Count:
        batches = [gpu.scrape() for gpu in gpus]
        sent = [batch.bytes_of("metrics") for batch in batches]
        return lambda: sum(batch.point_count for batch in batches) * bool(sent)

    return scrape


def _nvitop() -> Callable[[], Count] | None:
    try:
        from nvitop import Device  # optional
    except ImportError:
        return None
    devices = Device.all()

    def snapshot() -> Count:
        snapshots = [device.as_snapshot() for device in devices]
        return lambda: sum(isinstance(variable, int | float) for each in snapshots for variable in vars(each).values())

    return snapshot


def _polling(program: Path) -> Callable[[], Count]:
    def poll() -> Count:
        out = subprocess.run([program, "-q", "-x"], check=True, capture_output=True).stdout
        said = [_numbers(gpu) for gpu in ET.fromstring(out).iter("gpu")]
        return lambda: sum(map(len, said))

    return poll


def _numbers(gpu: ET.Element) -> list[tuple[str, float]]:
    """The number of numeric elements in the output."""
    numbers = []
    for one in gpu.iter():
        number, _, _ = (one.text or "").strip().partition(" ")
        try:
            numbers.append((one.tag, float(number)))
        except ValueError:
            continue
    return numbers
