"""The CPUs, the quota and the throttling of processes, by the files of control groups of both versions."""

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from otel_zernel_receivers.ebpf.processes.identities import Limits
from otel_zernel_receivers.ebpf.tables.process_table import LimitsReading, Throttling, WatchedProcess

PROCESS = WatchedProcess(0, 1, 100)


@dataclass
class Folder:
    """The parts of a process's folder in /proc that are read."""

    groups: dict[str, str] = field(default_factory=lambda: {"cpu": "/pods/job"})
    cpus: int = 8

    def cgroup(self, controller: str) -> str:
        return self.groups.get(controller, "")

    def cpus_allowed(self) -> int:
        return self.cpus

    def runnable_threads(self) -> int:
        return 3

    def anonymous_memory(self) -> int:
        return 0


def write(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("_", ".", 1)).write_text(text)


def read(limits: Limits, folder: Folder | None = None) -> LimitsReading:
    [reading] = limits.read([(PROCESS, folder or Folder())])  # type: ignore[list-item]  # the methods that it uses
    return reading


def test_version_1_counts_nanoseconds(tmp_path: Path) -> None:
    group = tmp_path / "cpu/pods/job"
    write(group, cpu_cfs_quota_us="150000", cpu_cfs_period_us="100000")
    write(group, cpu_stat="nr_periods 10\nnr_throttled 4\nthrottled_time 1500000000\n")
    limits = Limits(tmp_path)
    assert read(limits).throttling == Throttling(), "the time before the first reading was not watched"
    write(group, cpu_stat="nr_periods 20\nnr_throttled 9\nthrottled_time 3500000000\n")
    assert read(limits) == LimitsReading(PROCESS, 1.5, 3, Throttling(2.0, 10, 5))


def test_version_2_counts_microseconds_and_pressure_and_a_parent_stops_its_groups(tmp_path: Path) -> None:
    stat = "usage_usec 9\nnr_periods {}\nnr_throttled {}\nthrottled_usec {}\n"
    pressure = "some avg10=0.00 avg60=0.00 avg300=0.00 total={}\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=7\n"
    job, pods = tmp_path / "pods/job", tmp_path / "pods"
    write(job, cpu_stat=stat.format(0, 0, 0), cpu_max="max 100000\n", cpu_pressure=pressure.format(1_000_000))
    write(pods, cpu_stat=stat.format(1, 1, 500_000), cpu_max="50000 100000\n", cpu_pressure=pressure.format(5))
    limits = Limits(tmp_path)
    read(limits)
    write(job, cpu_stat=stat.format(0, 0, 0), cpu_pressure=pressure.format(1_250_000))
    write(pods, cpu_stat=stat.format(5, 4, 750_000))
    assert read(limits) == LimitsReading(PROCESS, 0.5, 3, Throttling(0.25, 4, 3, 0.25))


@pytest.mark.parametrize("path", ["", "/gone"])
def test_without_a_group_only_the_affinity_counts(tmp_path: Path, path: str) -> None:
    assert read(Limits(tmp_path), Folder({"cpu": path}, 2)) == LimitsReading(PROCESS, 2.0, 3, None)


def test_a_counter_that_began_again_counts_nothing_less_than_zero(tmp_path: Path) -> None:
    write(tmp_path / "pods/job", cpu_stat="nr_periods 9\nnr_throttled 9\nthrottled_usec 900\n")
    limits = Limits(tmp_path)
    read(limits)
    write(tmp_path / "pods/job", cpu_stat="nr_periods 1\nnr_throttled 1\nthrottled_usec 100\n")
    assert read(limits).throttling == Throttling()


def test_a_process_that_has_ended_is_left_out(tmp_path: Path) -> None:
    class Ended(Folder):
        def cgroup(self, controller: str) -> str:
            raise FileNotFoundError

    assert Limits(tmp_path).read([(PROCESS, Ended())]) == []  # type: ignore[list-item]  # the methods that it uses


@pytest.mark.parametrize(
    ("folder", "names"),
    [
        ("", ("memory.max", "memory.current", "inactive_file")),
        ("memory", ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")),
    ],
    ids=["v2", "v1"],
)
def test_the_smallest_limit_leaves_memory_and_files_that_were_read_once_give_way(
    tmp_path: Path, folder: str, names: tuple[str, str, str]
) -> None:
    limit_file, usage_file, cache = names
    for group, limit, used in (("pods/job", "1000", "700"), ("pods", "5000", "4900")):
        path = tmp_path / folder / group
        path.mkdir(parents=True, exist_ok=True)
        for name, text in ((limit_file, limit), (usage_file, used), ("memory.stat", f"anon 5\n{cache} 50\n")):
            (path / name).write_text(text)
    groups = Folder({"memory": "/pods/job"})
    assert read(Limits(tmp_path), groups).memory_left == 150, "the group around it has less left"
    for path in (tmp_path / folder / "pods", tmp_path / folder / "pods/job"):
        (path / limit_file).write_text("max" if "max" in limit_file else str(2**63 - 4096))
    assert read(Limits(tmp_path), groups).memory_left is None
