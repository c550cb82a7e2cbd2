"""What a heartbeat says, by the metrics of the host and nvml receivers and of the OpenTelemetry Collector."""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, MetricsData

from otel_zernel.batch import Batch
from otel_zernel.otlp.points import key_values
from otel_zernel_exporters.heartbeat.config import HeartbeatConfig
from otel_zernel_exporters.heartbeat.state import WorkerState
from tests.receivers.host.scraping import RECORDED, receiver, scraped

CUMULATIVE = AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
GIB = 1 << 30
Point = tuple[dict[str, Any], float]


def state(**options: Any) -> WorkerState:
    return WorkerState(HeartbeatConfig.model_validate({"endpoint": "localhost:1", **options}))


def metrics(
    resource: Mapping[str, Any], named: Mapping[str, Sequence[Point]], *, at: float = 0.0, ended: bool = False
) -> Batch:
    """Sums for names that end with `time`, gauges else. `at` in s since 1970."""
    data = MetricsData()
    inner = data.resource_metrics.add()
    inner.resource.attributes.extend(key_values(resource))
    scope = inner.scope_metrics.add()
    for name, found in named.items():
        metric = scope.metrics.add(name=name)
        target = metric.sum.data_points if name.endswith("time") else metric.gauge.data_points
        if name.endswith("time"):
            metric.sum.aggregation_temporality, metric.sum.is_monotonic = CUMULATIVE, True
        for attributes, value in found:
            point = target.add(as_double=value, time_unix_nano=int(at * 1e9), flags=int(ended))
            point.attributes.extend(key_values(attributes))
    return Batch(data)


def gpu(uuid: str, utilization: float, pids: Sequence[int] = ()) -> Batch:
    used = [({"process.pid": pid}, 1e9) for pid in pids]
    points = {"hw.gpu.utilization": [({"hw.id": uuid, "hw.gpu.task": "general"}, utilization)]}
    return metrics({"hw.type": "gpu", "hw.id": uuid}, {**points, "zernel.gpu.process.memory.usage": used})


def test_the_usage_of_a_recorded_machine(tmp_path: Path) -> None:
    root = Path(shutil.copytree(RECORDED, tmp_path / "hostfs", symlinks=True))
    scraping, own = receiver({"cpu": None, "memory": None, "process": None}, root), state()
    own.take(scraped(scraping)[0], 0.0)
    assert not own.is_known(0.0)
    stat = root / "proc/stat"
    stat.write_text(stat.read_text().replace("cpu  400 20 300 8000", "cpu  430 20 300 8070"))
    own.take(scraped(scraping)[0], 10.0)
    assert own.is_known(10.0)
    heartbeat = own.heartbeat(10.0)
    assert heartbeat.worker_id == "node-17"
    assert heartbeat.cpu_usage == pytest.approx(30.0)
    assert heartbeat.memory_usage == pytest.approx(40.0)
    (task,) = heartbeat.running_tasks
    assert (task.task_id, task.status) == ("train-1", "running")
    assert task.memory_allocated == 500_000 * 4096
    info = own.introduction(10.0)
    assert (info.total_cpu, info.total_memory) == (4, 1_000_000 * 1024)


def test_the_metrics_of_hostmetrics_of_the_opentelemetry_collector_are_read_too() -> None:
    own = state()
    for idle, user in ((100.0, 10.0), (107.0, 13.0)):
        cpus = [
            ({"cpu": cpu, "state": mode}, value / 2) for cpu in "01" for mode, value in (("idle", idle), ("user", user))
        ]
        memory = [({"state": "used"}, 3.0 * GIB), ({"state": "free"}, 1.0 * GIB)]
        disk = [({"mountpoint": "/", "state": "used"}, 25.0), ({"mountpoint": "/", "state": "free"}, 75.0)]
        named = {"system.cpu.time": cpus, "system.memory.usage": memory, "system.filesystem.usage": disk}
        own.take(metrics({"host.name": "w"}, named), 0.0)
    heartbeat = own.heartbeat(0.0)
    assert heartbeat.cpu_usage == pytest.approx(30.0)
    assert heartbeat.memory_usage == pytest.approx(75.0)
    assert heartbeat.storage_usage == pytest.approx(25.0)


def test_in_a_container_the_shares_are_those_of_its_limits() -> None:
    own = state(scope="cgroup")
    for at, spent in ((100.0, 50.0), (110.0, 60.0)):
        named: dict[str, Sequence[Point]] = {
            "zernel.cgroup.cpu.limit": [({}, 2.0)],
            "zernel.cgroup.cpu.time": [({}, spent)],
            "zernel.cgroup.memory.usage": [({}, 1.0 * GIB)],
            "zernel.cgroup.memory.limit": [({}, 4.0 * GIB)],
            "system.memory.limit": [({}, 100.0 * GIB)],
            "system.cpu.logical.count": [({}, 64.0)],
        }
        own.take(metrics({"host.name": "w"}, named, at=at), at)
    heartbeat, info = own.heartbeat(110.0), own.introduction(110.0)
    assert (heartbeat.cpu_usage, heartbeat.memory_usage) == pytest.approx((50.0, 25.0))
    assert (info.total_cpu, info.total_memory) == (2.0, 4.0 * GIB)


def test_gpu_usage_is_the_mean_of_all_gpus_and_a_task_has_those_of_its_processes() -> None:
    own = state()
    own.take(gpu("GPU-a", 0.9, [812]), 0.0)
    own.take(gpu("GPU-b", 0.5, [812, 813]), 0.0)
    own.take(gpu("GPU-c", 0.1, [99]), 0.0)
    for pid in (812, 813):
        about = {"process.pid": pid, "zernel.job.id": "42"}
        for at in (100.0, 102.0):
            named: dict[str, Sequence[Point]] = {
                "process.memory.usage": [({}, 2e9)],
                "process.cpu.time": [({"cpu.mode": "user"}, at * 1.5)],
            }
            own.take(metrics(about, named, at=at), 0.0)
    heartbeat = own.heartbeat(0.0)
    assert heartbeat.gpu_usage == pytest.approx(50.0)
    assert own.introduction(0.0).total_gpu == 3
    (task,) = heartbeat.running_tasks
    assert (task.task_id, task.gpu_allocated, task.memory_allocated) == ("42", 2, 4e9)
    assert task.cpu_allocated == pytest.approx(3.0)


def test_processes_of_several_hosts_with_equal_pids_are_not_mixed() -> None:
    own = state()
    for host, size in (("n1", 1e9), ("n2", 2e9)):
        used = {"zernel.gpu.process.memory.usage": [({"process.pid": 7}, 1e9)]}
        own.take(metrics({"hw.type": "gpu", "hw.id": "0", "host.name": host}, used), 0.0)
        about = {"host.name": host, "process.pid": 7, "zernel.job.id": f"job of {host}"}
        own.take(metrics(about, {"process.memory.usage": [({}, size)]}), 0.0)
    found = {task.task_id: (task.memory_allocated, task.gpu_allocated) for task in own.heartbeat(0.0).running_tasks}
    assert found == {"job of n1": (1e9, 1.0), "job of n2": (2e9, 1.0)}
    ended = {"host.name": "n1", "process.pid": 7, "zernel.job.id": "job of n1"}
    own.take(metrics(ended, {"process.memory.usage": [({}, 0.0)]}, ended=True), 1.0)
    assert [task.task_id for task in own.heartbeat(1.0).running_tasks] == ["job of n2"]


def test_what_no_metric_renews_is_not_sent_any_more() -> None:
    own = state(stale_after="60s")
    own.take(gpu("GPU-a", 0.9), 0.0)
    own.take(metrics({"process.pid": 1, "zernel.job.id": "j"}, {"process.memory.usage": [({}, 1.0)]}), 0.0)
    assert (own.heartbeat(60.0).gpu_usage, len(own.heartbeat(60.0).running_tasks)) == (90.0, 1)
    assert (own.heartbeat(61.0).gpu_usage, len(own.heartbeat(61.0).running_tasks)) == (0.0, 0)


def test_a_task_ends_with_the_series_of_its_last_process() -> None:
    own = state()
    about = {"process.pid": 1, "zernel.job.id": "j"}
    own.take(metrics(about, {"process.memory.usage": [({}, 1.0)]}), 0.0)
    own.take(metrics(about, {"process.memory.usage": [({}, 0.0)]}, ended=True), 1.0)
    assert list(own.heartbeat(1.0).running_tasks) == []


def test_a_heartbeat_has_at_most_so_many_tasks() -> None:
    own = state(max_tasks=2)
    for pid in range(5):
        named: dict[str, Sequence[Point]] = {"process.memory.usage": [({}, float(pid))]}
        own.take(metrics({"process.pid": pid + 1, "zernel.task.id": f"t{pid}"}, named), 0.0)
    assert [task.task_id for task in own.heartbeat(0.0).running_tasks] == ["t4", "t3"]


def test_one_filesystem_is_the_storage_if_it_is_named() -> None:
    own = state(storage_mount="/data")
    points = [
        ({"system.filesystem.mountpoint": mount, "system.filesystem.state": name}, size)
        for mount, name, size in (
            ("/", "used", 90.0),
            ("/", "free", 10.0),
            ("/data", "used", 1.0),
            ("/data", "free", 3.0),
        )
    ]
    own.take(metrics({}, {"system.filesystem.usage": points}), 0.0)
    assert own.heartbeat(0.0).storage_usage == 25.0


def test_the_configured_name_wins() -> None:
    assert state(worker_id="worker-7").heartbeat(0.0).worker_id == "worker-7"
