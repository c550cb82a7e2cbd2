"""Scrapes of a recorded machine, which is mounted at `root_path`: each value follows from its files by hand."""

import shutil
from pathlib import Path

import pytest

from otel_zernel.testing import FakeClock
from tests.receivers.host.scraping import EVERY, RECORDED, all_metrics, by_series, receiver, resources, scraped

TICK, KIB, PAGE = 0.01, 1024, 4096


def copy_of_machine(folder: Path) -> Path:
    return Path(shutil.copytree(RECORDED, folder / "hostfs", symlinks=True))


def test_cpu_time_is_the_sum_of_all_cpus_by_mode() -> None:
    batch, problems = scraped(receiver({"cpu": None}))
    found = by_series(batch)
    assert problems == []
    assert found["system.cpu.logical.count",] == 4
    assert {key[1]: value for key, value in found.items() if key[0] == "system.cpu.time"} == pytest.approx(
        {
            "user": 400 * TICK,
            "nice": 20 * TICK,
            "system": 300 * TICK,
            "idle": 8000 * TICK,
            "iowait": 60 * TICK,
            "interrupt": 40 * TICK,
            "steal": 5 * TICK,
        }
    )


def test_each_cpu_has_its_series_if_wanted() -> None:
    batch, _ = scraped(receiver({"cpu": {"per_cpu": True}}))
    found = by_series(batch)
    assert found["system.cpu.time", 3, "steal"] == pytest.approx(2 * TICK)
    assert len([key for key in found if key[0] == "system.cpu.time"]) == 4 * 7


def test_utilization_is_the_share_since_the_last_scrape_and_iowait_never_goes_back(tmp_path: Path) -> None:
    root = copy_of_machine(tmp_path)
    scraping = receiver({"cpu": None}, root)
    first, _ = scraped(scraping)
    assert not [key for key in by_series(first) if key[0] == "system.cpu.utilization"]
    (root / "proc/stat").write_text("cpu 430 20 300 8070 50 10 30 5 0 0\ncpu0 430 20 300 8070 50 10 30 5\nbtime 1\n")
    found = by_series(scraped(scraping)[0])
    assert found["system.cpu.utilization", "user"] == pytest.approx(0.3)
    assert found["system.cpu.utilization", "idle"] == pytest.approx(0.7)
    assert found["system.cpu.time", "iowait"] == pytest.approx(60 * TICK)


def test_cores_and_frequencies_come_from_cpuinfo() -> None:
    found = by_series(scraped(receiver({"cpu": all_metrics("cpu")}))[0])
    assert found["system.cpu.physical.count",] == 2
    assert found["system.cpu.frequency", 1] == 2.5e9


def test_memory_by_state() -> None:
    found = by_series(scraped(receiver({"memory": all_metrics("memory")}))[0])
    assert found["system.memory.usage", "used"] == 400_000 * KIB
    assert found["system.memory.usage", "free"] == 200_000 * KIB
    assert found["system.memory.usage", "buffers"] == 10_000 * KIB
    assert found["system.memory.usage", "cached"] == 390_000 * KIB
    assert found["system.memory.limit",] == 1_000_000 * KIB
    assert found["system.memory.utilization", "used"] == 0.4
    assert found["system.memory.linux.shared",] == 50_000 * KIB
    assert found["system.memory.linux.slab.usage", "unreclaimable"] == 20_000 * KIB
    assert found["system.memory.linux.hugepages.usage", "used"] == 3


def test_only_whole_disks_are_reported_and_no_loop_device() -> None:
    found = by_series(scraped(receiver({"disk": None}))[0])
    assert {key[1] for key in found} == {"nvme0n1"}
    assert found["system.disk.io", "nvme0n1", "read"] == 16000 * 512
    assert found["system.disk.operations", "nvme0n1", "write"] == 400
    assert found["system.disk.operation_time", "nvme0n1", "write"] == 1.5
    assert found["system.disk.merged", "nvme0n1", "read"] == 50
    assert found["system.disk.io_time", "nvme0n1"] == 3.2


def test_disks_are_selected_by_name_and_by_pattern() -> None:
    chosen = {"include": {"match_type": "strict", "devices": ["loop0"]}, "exclude": None}
    assert {key[1] for key in by_series(scraped(receiver({"disk": chosen}))[0])} == {"loop0"}
    none = {"exclude": {"match_type": "regexp", "devices": ["nvme", "loop"]}}
    assert by_series(scraped(receiver({"disk": none}))[0]) == {}


def test_network_load_and_paging() -> None:
    scrapers = {"network": all_metrics("network"), "load": None, "paging": all_metrics("paging")}
    found = by_series(scraped(receiver(scrapers))[0])
    assert found["system.network.io", "eth0", "receive"] == 1_000_000
    assert found["system.network.packet.count", "eth0", "transmit"] == 1500
    assert found["system.network.errors", "eth0", "transmit"] == 3
    assert found["system.network.packet.dropped", "eth0", "receive"] == 2
    assert found["system.network.connection.count", "tcp", "established"] == 2
    assert found["system.network.connection.count", "tcp", "listen"] == 1
    assert [found[f"system.cpu.load_average.{minutes}m",] for minutes in (1, 5, 15)] == [3.5, 2.25, 1.0]
    assert found["system.paging.usage", "/dev/dm-0", "free"] == 6000 * KIB
    assert found["system.paging.utilization", "/dev/dm-0", "used"] == 0.25
    assert found["system.paging.operations", "out"] == 34
    assert (found["system.paging.faults", "major"], found["system.paging.faults", "minor"]) == (100, 4900)


def test_load_is_divided_by_the_cpus_if_wanted() -> None:
    found = by_series(scraped(receiver({"load": {"cpu_average": True}}))[0])
    assert found["system.cpu.load_average.1m",] == 3.5 / 4


def test_pressure_of_the_host() -> None:
    found = by_series(scraped(receiver({"pressure": None}))[0])
    assert found["zernel.pressure.time", "io", "some", "host"] == 90.0
    assert found["zernel.pressure.share", "io", "full", "host"] == 0.25
    assert len(found) == 12


def test_the_collectors_own_cgroup_says_nothing_about_a_mounted_host() -> None:
    assert by_series(scraped(receiver({"cgroup": None}))[0]) == {}


def test_processes_by_state() -> None:
    found = by_series(scraped(receiver({"processes": None}))[0])
    counts = {key[1]: value for key, value in found.items() if key[0] == "system.process.count"}
    assert {state: count for state, count in counts.items() if count} == {"sleeping": 2, "blocked": 1, "defunct": 1}
    assert found["system.process.created",] == 4321


def test_a_process_has_its_own_resource_and_its_job_and_no_other_variable() -> None:
    batch, _ = scraped(receiver({"process": all_metrics("process") | {"include": PYTHON}}))
    (found,) = resources(batch)
    assert found["host.name"] == "node-17"
    assert found["process.executable.name"] == "python3.11"
    assert found["process.executable.path"] == "/opt/conda/bin/python3.11"
    assert (found["process.pid"], found["process.parent_pid"]) == (812, 1)
    assert (found["zernel.job.id"], found["zernel.task.id"]) == ("4242", "train-1")
    assert found["process.creation.time"] == "2023-11-14T22:14:20.000+00:00"
    assert b"hunter2" not in batch.bytes_of("metrics")


PYTHON = {"match_type": "regexp", "names": ["^python"]}


def test_the_values_of_a_process() -> None:
    clock = FakeClock(1_700_000_100_000_000_000)
    wanted = all_metrics("process") | {"include": PYTHON}
    wanted["metrics"]["process.unix.file_descriptor.count"] = {"enabled": False}
    found = by_series(scraped(receiver({"process": wanted}, clock=clock))[0], pid=812)
    assert found["process.cpu.time", "user"] == 90.0
    assert found["process.cpu.time", "system"] == 12.0
    assert found["process.memory.usage",] == 500_000 * PAGE
    assert found["process.memory.virtual",] == 40_000_000_000
    assert found["process.thread.count",] == 17
    assert found["process.disk.io", "read"] == 123456
    assert found["process.context_switches", "involuntary"] == 8
    assert found["process.paging.faults", "major"] == 30
    assert found["process.uptime",] == 40.0


def test_kernel_threads_and_ended_processes_are_not_reported() -> None:
    batch, _ = scraped(receiver({"process": None}))
    assert {resource["process.pid"] for resource in resources(batch) if "process.pid" in resource} == {1, 812}


def test_the_series_of_a_process_end_with_it(tmp_path: Path) -> None:
    root = copy_of_machine(tmp_path)
    scraping = receiver({"process": None}, root)
    before = by_series(scraped(scraping)[0], pid=812)
    shutil.rmtree(root / "proc/812")
    after = by_series(scraped(scraping)[0], pid=812)
    assert after == dict.fromkeys(before, None)
    assert by_series(scraped(scraping)[0], pid=812) == {}


def test_a_process_that_runs_another_program_gets_another_name(tmp_path: Path) -> None:
    root = copy_of_machine(tmp_path)
    scraping = receiver({"process": None}, root)
    scraped(scraping)
    (root / "proc/812/exe").unlink()
    (root / "proc/812/exe").symlink_to("/usr/bin/ffmpeg")
    stat = root / "proc/812/stat"
    stat.write_text(stat.read_text().replace("(python (rank 0)", "(ffmpeg)"))
    names = {resource.get("process.executable.name") for resource in resources(scraped(scraping)[0])}
    assert "ffmpeg" in names


def test_with_too_many_processes_those_of_jobs_stay_and_the_rest_is_a_problem() -> None:
    scraping = receiver({"process": {"max_processes": 1}})
    batch, problems = scraped(scraping)
    assert [resource["process.pid"] for resource in resources(batch) if "process.pid" in resource] == [812]
    assert any("1 of 2 processes are not reported: raise max_processes" in problem for problem in problems)
    assert scraped(scraping)[1] == []


def test_a_missing_file_costs_its_scraper_only(tmp_path: Path) -> None:
    root = copy_of_machine(tmp_path)
    (root / "proc/diskstats").unlink()
    (root / "proc/meminfo").write_text("garbage\n")
    batch, problems = scraped(receiver({"disk": None, "memory": None, "load": None}, root))
    assert len(problems) == 2
    assert "diskstats: No such file or directory" in problems[0]
    assert "unknown form (MemoryReader" in problems[0]
    assert "system.cpu.load_average.1m" in {key[0] for key in by_series(batch)}


@pytest.mark.parametrize("name", ["stat", "meminfo", "diskstats", "net/dev", "loadavg", "swaps", "vmstat", "1/mounts"])
@pytest.mark.parametrize(
    "text", ["", "\n", "x", "cpu\nx y z\n", "btime\nprocesses\n", "a b\nc: d e f\n: :\n", "0 " * 99]
)
def test_a_file_of_any_form_never_stops_the_receiver(name: str, text: str, tmp_path: Path) -> None:
    root = copy_of_machine(tmp_path)
    scraping = receiver({one: None for one in EVERY if one != "cgroup"}, root)
    scraped(scraping)
    (root / "proc" / name).write_text(text)
    batch, _ = scraped(scraping)
    assert batch.point_count > 0


def test_sums_start_with_the_machine_or_the_process() -> None:
    batch, _ = scraped(receiver({"cpu": None, "process": {"include": PYTHON}}))
    starts = {
        metric.name: metric.sum.data_points[0].start_time_unix_nano
        for resource in batch.metrics.resource_metrics
        for metric in resource.scope_metrics[0].metrics
        if metric.sum.is_monotonic
    }
    assert starts["system.cpu.time"] == 1_700_000_000_000_000_000
    assert starts["process.cpu.time"] == 1_700_000_060_000_000_000
