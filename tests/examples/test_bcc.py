"""The examples with BPF programs measure what their comments promise."""

import os
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from otel_zernel.clock import SystemClock
from otel_zernel.config.schema import read_settings
from otel_zernel.registry import Registry
from otel_zernel.testing import make_context
from otel_zernel_receivers.bcc import BccReceiver
from otel_zernel_receivers.bcc.config import BccConfig
from tests.receivers.bcc.programs import by_series, kernel_headers, require_bcc, values

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module", autouse=True)
def _works() -> None:
    require_bcc()


def example(name: str, environment: Mapping[str, str] | None = None) -> BccReceiver:
    """The receiver of an example."""
    environ = {"KERNEL_HEADERS": kernel_headers() or "null", **(environment or {})}
    settings = read_settings([str(EXAMPLES / name)], [], environ, Registry.installed())
    config = settings.receivers["bcc"].config
    assert isinstance(config, BccConfig)
    return BccReceiver(config, make_context(clock=SystemClock()))


def scraped(bcc: BccReceiver, metric: str) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """The points of a metric, by the values of their attributes."""
    return ((key[1:], point) for key, point in by_series(bcc.scrape()).items() if key[0] == metric and point)


def test_the_latency_of_a_function_is_in_its_histogram() -> None:
    """usleep() of this process, as the function to probe."""
    with closing(example("bcc_uprobe.yaml", {"PROBE_FUNCTION": "usleep"})) as bcc:
        bcc.scrape()
        before = time.perf_counter()
        script = "import ctypes; [ctypes.CDLL(None).usleep(20_000) for _ in range(5)]"
        with subprocess.Popen(["/usr/bin/python3", "-c", script]) as process:
            process.wait()
            longest = time.perf_counter() - before
            (point,) = [point for key, point in scraped(bcc, "function.latency") if key[0] == process.pid]
    assert point.count == 5
    assert 0.1 <= point.sum <= longest
    used = [bound for bound, count in zip(point.explicit_bounds, point.bucket_counts, strict=False) if count]
    assert used[0] >= 0.02
    assert used[-1] <= 2 * longest


def test_by_default_it_is_the_lookup_of_names_of_hosts() -> None:
    with closing(example("bcc_uprobe.yaml")) as bcc:
        bcc.scrape()
        socket.getaddrinfo("localhost", 80)
        found = {key: point.count for key, point in scraped(bcc, "function.latency") if key[0] == os.getpid()}
    assert sum(found.values()) >= 1


def test_written_data_are_requests_to_a_device(tmp_path: Path) -> None:
    file = tmp_path / "written"
    written = 8 * 1024 * 1024
    with closing(example("bcc_io.yaml")) as bcc:
        bcc.scrape()
        before = values(bcc.scrape())
        with file.open("wb") as output:
            output.write(os.urandom(written))
            output.flush()
            os.fsync(output.fileno())
        after = values(bcc.scrape())
    grown = {key: value - before.get(key, 0) for key, value in after.items() if value is not None}
    devices = {key[1] for key, size in grown.items() if key[0] == "system.disk.request.size" and size >= written}
    if not devices:
        pytest.skip(f"{tmp_path} is on no block device")
    assert all((Path("/sys/class/block") / device).exists() for device in devices)
    (device,) = devices
    assert grown["system.disk.request.latency", device, "write"] > 0
    assert grown["system.disk.request.count", device, "write"] > 0


COLLECTING = """
import gc, sys
gc.disable()
for line in sys.stdin:
    for _ in range(3):
        one = []
        one.append(one)
        del one
        assert gc.collect() == 1
    print("done", flush=True)
"""


def test_garbage_collections_of_a_running_and_of_a_later_python_are_measured() -> None:
    """The first process has the semaphore of its probes raised while it runs."""
    python = str(Path("/usr/bin/python3").resolve())
    pipe = subprocess.PIPE
    with (
        subprocess.Popen([python, "-c", COLLECTING], stdin=pipe, stdout=pipe, text=True) as running,
        closing(example("bcc_python_usdt.yaml")) as bcc,
    ):
        collect(running)
        bcc.scrape()
        collect(running)
        with subprocess.Popen([python, "-c", COLLECTING], stdin=pipe, stdout=pipe, text=True) as later:
            collect(later)
            found = values(bcc.scrape())
    assert found["cpython.gc.duration", running.pid, 2] == found["cpython.gc.duration", later.pid, 2] == 3
    assert found["cpython.gc.collected_objects", running.pid] == 3
    assert found["cpython.gc.collected_objects", later.pid] >= 3  # and those of its own start


def collect(process: subprocess.Popen[str]) -> None:
    """Makes the process collect three times."""
    assert process.stdin
    assert process.stdout
    process.stdin.write("\n")
    process.stdin.flush()
    assert process.stdout.readline() == "done\n"
