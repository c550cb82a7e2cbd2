"""The collectors of a worker and of its master, as real processes: values arrive, and either may be killed."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from otel_zernel.testing import until
from tests.collectors import collector
from tests.free_ports import free_port

WORKER = "worker-1"


class Ports:
    """The ports of one fleet."""

    def __init__(self) -> None:
        self.workers, self.api, self.own = free_port(), free_port(), free_port()
        limits = httpx.Limits(max_keepalive_connections=0)
        self._client = httpx.Client(timeout=10, limits=limits)  # one for all: each loads certificates for 20 ms

    def get(self, path: str) -> Any:
        """The JSON of the master; None if there is no master, or no such worker."""
        try:
            answer = self._client.get(f"http://127.0.0.1:{self.api}{path}")
        except httpx.HTTPError:
            return None
        return answer.json() if answer.status_code == 200 else None

    def state(self) -> str | None:
        """The state of the worker, if the master knows it."""
        found = self.get(f"/api/workers/{WORKER}")
        return found and str(found["state"])

    def own_metric(self, name: str) -> float:
        """A counter of the worker's collector about itself; 0 before it counts."""
        try:
            text = self._client.get(f"http://127.0.0.1:{self.own}/metrics").text
        except httpx.HTTPError:
            return 0
        return sum(float(value) for value in re.findall(rf"^{name}(?:{{.*}})? (\S+)", text, re.MULTILINE))


def master(ports: Ports, extensions: dict[str, Any] | None = None, **heartbeat: Any) -> dict[str, Any]:
    """The settings of a master."""
    receiver = {"endpoint": f"127.0.0.1:{ports.workers}", "api": "api", "inactive_after": "2s", **heartbeat}
    every = {"api": {"endpoint": f"127.0.0.1:{ports.api}"}, **(extensions or {})}
    pipeline = {"receivers": ["heartbeat"], "exporters": ["debug"]}
    return {
        "receivers": {"heartbeat": receiver},
        "exporters": {"debug": None},
        "extensions": every,
        "service": {"extensions": list(every), "pipelines": {"metrics": pipeline}},
    }


def worker(ports: Ports, extensions: dict[str, Any] | None = None, **heartbeat: Any) -> dict[str, Any]:
    """The settings of a collector that watches this machine."""
    scrapers: dict[str, Any] = {name: {} for name in ("cpu", "memory", "filesystem", "process")}
    host = {"collection_interval": "200ms", "initial_delay": "0s", "scrapers": scrapers}
    exporter = {"endpoint": f"http://127.0.0.1:{ports.workers}", "worker_id": WORKER, "interval": "200ms", **heartbeat}
    own = {"readers": [{"pull": {"exporter": {"prometheus": {"host": "127.0.0.1", "port": ports.own}}}}]}
    return {
        "receivers": {"host": host},
        "exporters": {"heartbeat": exporter},
        "extensions": extensions or {},
        "service": {
            "extensions": list(extensions or {}),
            "telemetry": {"metrics": own},
            "pipelines": {"metrics": {"receivers": ["host"], "exporters": ["heartbeat"]}},
        },
    }


@contextmanager
def training(job: str) -> Iterator[None]:
    """A process of a job."""
    environment = {**os.environ, "SLURM_JOB_ID": job, "RANK": "0", "WORLD_SIZE": "1"}
    program = "import sys; held = bytearray(1 << 25); print('ready', flush=True); sys.stdin.read()"
    process = subprocess.Popen(
        [sys.executable, "-c", program], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout
    process.stdout.readline()
    try:
        yield
    finally:
        process.kill()
        process.communicate()


async def test_the_values_of_the_machine_and_its_tasks_arrive_at_the_master(tmp_path: Path) -> None:
    ports = Ports()
    serving = collector(tmp_path / "master", master(ports), ports.workers)
    async with serving, collector(tmp_path / "worker", worker(ports)):

        def has_task() -> Any:
            port = ports.get(f"/telemetry/{WORKER}")
            return [one for one in port["running_tasks"] if one["memory_allocated"] > 1 << 25] if port else []

        with training("4711"):
            await until(has_task, 60)
            (task,) = has_task()
            assert (task["task_id"], task["status"]) == ("4711", "running")
        await until(lambda: not has_task(), 60)
        telemetry = ports.get("/telemetry")[WORKER]
        about = ports.get("/workers")[0]
        usages = ports.get(f"/api/workers/{WORKER}/metrics")
    assert telemetry["is_active"] is True
    assert 0 <= telemetry["cpu_usage"] <= 100
    assert 0 < telemetry["memory_usage"] < 100
    assert 0 < usages["storage_usage"] <= 100
    assert about["total_cpu"] == psutil.cpu_count()
    assert about["total_memory"] == pytest.approx(psutil.virtual_memory().total, rel=0.01)
    assert about["worker_ip"] == "127.0.0.1"


async def test_a_killed_worker_is_unknown_then_inactive_and_active_when_it_is_back(tmp_path: Path) -> None:
    ports, seen = Ports(), []

    def state() -> str | None:
        seen.append(ports.state())
        return seen[-1]

    async with collector(tmp_path / "master", master(ports), ports.workers):
        async with collector(tmp_path / "worker", worker(ports)) as running:
            await until(lambda: state() == "active", 60)
            running.kill()
        await until(lambda: state() == "inactive", 60)
        async with collector(tmp_path / "worker", worker(ports)):
            await until(lambda: state() == "active", 60)
    known = [one for one, before in zip(seen, [None, *seen], strict=False) if one not in (before, None)]
    known = known[known.index("active") :]  # before its first heartbeat, a worker is inactive
    assert known in (["active", "unknown", "inactive", "active"], ["active", "inactive", "active"])


async def test_a_killed_master_knows_the_worker_again_and_the_worker_counts_what_it_skipped(tmp_path: Path) -> None:
    ports = Ports()
    serving = collector(tmp_path / "master", master(ports), ports.workers)
    async with serving as running, collector(tmp_path / "worker", worker(ports)):
        await until(lambda: ports.state() == "active", 60)
        skipped = ports.own_metric("zernel_heartbeat_skipped")
        running.kill()
        async with collector(tmp_path / "master", master(ports)):
            await until(lambda: ports.state() == "active", 60)
            assert ports.get("/workers")[0]["total_memory"] > 0
        assert ports.own_metric("zernel_heartbeat_skipped") > skipped
        assert ports.own_metric("zernel_heartbeat_failures") > 0
        assert ports.own_metric("zernel_heartbeat_sent") > 0
    log = (tmp_path / "worker" / "log").read_text()
    assert log.count("answers the heartbeats") == 2
    assert log.count("The master does not answer") < 4


def bearer(token: str) -> dict[str, Any]:
    return {"bearertokenauth": {"token": token}}


async def test_a_worker_with_a_wrong_token_is_refused_and_both_sides_keep_the_secret(tmp_path: Path) -> None:
    ports, auth = Ports(), {"auth": {"authenticator": "bearertokenauth"}}
    plain = {"tls": {"insecure": True}}
    guarded = master(ports, bearer("right-secret"), **auth)
    async with collector(tmp_path / "master", guarded, ports.workers, ports.api):
        async with collector(tmp_path / "worker", worker(ports, bearer("wrong-secret"), **auth, **plain)):
            await until(lambda: ports.own_metric("zernel_heartbeat_failures") > 0, 60)
            assert ports.get("/telemetry") == {}
        log = (tmp_path / "worker" / "log").read_text()
        async with collector(tmp_path / "worker", worker(ports, bearer("right-secret"), **auth, **plain)):
            await until(lambda: ports.state() == "active", 60)
    assert "UNAUTHENTICATED" in log
    for name in ("master", "worker"):
        assert "-secret" not in (tmp_path / name / "log").read_text()
