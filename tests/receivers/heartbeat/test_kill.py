"""`kill -9` of a worker and of the master: nobody is judged wrongly, and everybody comes back."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import yaml

from otel_zernel.testing import until
from tests.free_ports import free_port

Process = subprocess.Popen[bytes]


@contextmanager
def killed_at_the_end(*command: str) -> Iterator[Process]:
    process = subprocess.Popen([sys.executable, "-m", *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def configured(folder: Path, inactive_after: str) -> tuple[Path, int, int]:
    """The configuration of a master, its port for workers, and that of its metrics."""
    workers, page = free_port(), free_port()
    config = folder / "master.yaml"
    settings = {
        "receivers": {
            "heartbeat": {
                "endpoint": f"127.0.0.1:{workers}",
                "collection_interval": "100ms",
                "inactive_after": inactive_after,
            }
        },
        "exporters": {"prometheus": {"endpoint": f"127.0.0.1:{page}"}},
        "service": {
            "telemetry": {"metrics": {"level": "none"}},
            "pipelines": {"metrics": {"receivers": ["heartbeat"], "exporters": ["prometheus"]}},
        },
    }
    config.write_text(yaml.safe_dump(settings))
    return config, workers, page


def active(page: int) -> dict[str, bool]:
    """Whether each worker is active, as the master's page shows it. Empty if there is no page."""
    try:
        text = httpx.get(f"http://127.0.0.1:{page}/metrics", timeout=60).text
    except httpx.HTTPError:
        return {}
    lines = [line for line in text.splitlines() if line.startswith("zernel_worker_active")]
    return {line.partition('host_name="')[2].partition('"')[0]: line.endswith(" 1") for line in lines}


async def test_a_killed_worker_becomes_inactive_and_its_successor_active_while_the_other_stays(tmp_path: Path) -> None:
    config, port, page = configured(tmp_path, "2s")
    worker = "tests.receivers.heartbeat.foreign_worker", str(port)
    with killed_at_the_end("otel_zernel", "run", "--config", str(config)), killed_at_the_end(*worker, "b"):
        with killed_at_the_end(*worker, "a"):
            await until(lambda: active(page) == {"a": True, "b": True}, 60)
        await until(lambda: active(page) == {"a": False, "b": True}, 60)
        with killed_at_the_end(*worker, "a"):
            await until(lambda: active(page) == {"a": True, "b": True}, 60)


async def test_a_killed_master_comes_back_with_every_worker_and_calls_none_inactive(tmp_path: Path) -> None:
    config, port, page = configured(tmp_path, "30s")
    master = "otel_zernel", "run", "--config", str(config)
    seen: list[dict[str, bool]] = []

    def all_active() -> bool:
        seen.append(active(page))
        return seen[-1] == {"a": True, "b": True}

    worker = "tests.receivers.heartbeat.foreign_worker", str(port)
    with killed_at_the_end(*worker, "a"), killed_at_the_end(*worker, "b"):
        for _ in range(2):
            with killed_at_the_end(*master):
                await until(all_active, 60)
    assert all(all(one.values()) for one in seen)
