"""Scrapes of the machine that runs the tests, compared with psutil and with its files."""

import contextlib
import os
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest

from otel_zernel.clock import SystemClock
from otel_zernel_receivers.host.config import FilesystemConfig, ScrapersConfig
from otel_zernel_receivers.host.linux.cgroup import CgroupReader
from otel_zernel_receivers.host.linux.files import HostFiles
from otel_zernel_receivers.host.linux.filesystem import FilesystemReader, HangingCalls, Mount, parse_mounts
from otel_zernel_receivers.host.portable import portable_readers
from tests.receivers.host.scraping import EVERY, RECORDED, all_metrics, by_series, receiver, resources, scraped

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def test_every_scraper_works_here_and_every_metric_is_its_own() -> None:
    batch, _ = scraped(receiver({name: all_metrics(name) for name in EVERY}, None, SystemClock()))
    assert {"system.cpu.time", "system.memory.usage", "system.network.io"} <= {key[0] for key in by_series(batch)}


def test_the_values_are_those_of_psutil() -> None:
    """psutil reads before and after the scrape: counters lie between, other values are close."""
    scraping = receiver({"cpu": None, "memory": None, "network": None, "disk": None}, None, SystemClock())
    before, net_before = psutil.cpu_times(), psutil.net_io_counters(pernic=True)
    found = by_series(scraped(scraping)[0])
    after, net_after = psutil.cpu_times(), psutil.net_io_counters(pernic=True)
    for mode in ("user", "system", "idle", "nice"):
        value = found["system.cpu.time", mode]
        assert value is not None
        assert getattr(before, mode) - 0.011 <= value <= getattr(after, mode) + 0.011
    assert found["system.memory.limit",] == psutil.virtual_memory().total
    assert found["system.cpu.logical.count",] == psutil.cpu_count()
    for name, counts in net_before.items():
        received = found["system.network.io", name, "receive"]
        assert received is not None
        assert counts.bytes_recv <= received <= net_after[name].bytes_recv
    disks = {key[1] for key in found if key[0] == "system.disk.io"}
    assert disks <= set(psutil.disk_io_counters(perdisk=True))


def test_the_portable_scrapers_agree_with_those_of_linux() -> None:
    """macOS has only these. They work here, too."""
    config = ScrapersConfig.model_validate({name: None for name in EVERY if name not in ("processes", "process")})
    readers = portable_readers(config)
    portable = {(one.metric, *(value for _, value in one.attributes)) for reader in readers for one in reader.read([])}
    own = set(by_series(scraped(receiver({name: all_metrics(name) for name in EVERY}, None, SystemClock()))[0]))
    ours = {key[0] for key in own}
    assert {key[0] for key in portable} <= ours
    network = {key for key in portable if str(key[0]).startswith("system.network")}
    assert network
    assert network <= own


def test_a_process_that_works_is_seen_with_its_cpu_time_and_memory() -> None:
    code = "import time; block = bytearray(50_000_000); end = time.process_time() + 0.2\n"
    code += "while time.process_time() < end: pass\nprint('ready', flush=True); time.sleep(60)"
    environment = {**os.environ, "SLURM_JOB_ID": "77"}
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env=environment) as process:
        try:
            assert process.stdout
            process.stdout.readline()
            batch, _ = scraped(receiver({"process": None}, None, SystemClock()))
        finally:
            process.kill()
    found = by_series(batch, pid=process.pid)
    spent = (found["process.cpu.time", "user"] or 0) + (found["process.cpu.time", "system"] or 0)
    assert spent >= 0.19
    assert (found["process.memory.usage",] or 0) > 50_000_000
    (resource,) = (resource for resource in resources(batch) if resource.get("process.pid") == process.pid)
    assert resource["zernel.job.id"] == "77"


def test_a_process_that_executes_its_own_program_again_has_its_new_environment() -> None:
    """As one that was seen between fork and exec. Its pid, start and name stay the same."""
    again = "import time; print('again', flush=True); time.sleep(60)"
    code = "import os, sys; print('first', flush=True); sys.stdin.readline()\n"
    code += f"os.execve(sys.executable, [sys.executable, '-c', {again!r}], os.environ | {{'SLURM_JOB_ID': '77'}})"
    scraping = receiver({"process": None}, None, SystemClock())
    found = []
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin
        assert process.stdout
        try:
            for _ in range(2):
                process.stdout.readline()
                batch, _ = scraped(scraping)
                jobs = [
                    resource.get("zernel.job.id")
                    for resource in resources(batch)
                    if resource.get("process.pid") == process.pid
                ]
                found.append(jobs)
                with contextlib.suppress(BrokenPipeError):
                    process.stdin.write("go on\n")
                    process.stdin.flush()
        finally:
            process.kill()
    assert found == [[None], ["77", None]]  # the last one ends the series of the first program


def test_filesystems_are_read_once_each_and_virtual_ones_left_out() -> None:
    mounts = list(parse_mounts((RECORDED / "proc/1/mounts").read_text()))
    assert Mount("server:/data", "/mnt/with space", "nfs4", "ro") in mounts
    selected = FilesystemReader(FilesystemConfig(), HostFiles(str(RECORDED)))._selected()
    assert [mount.point for mount in selected] == ["/", "/mnt/with space", "/dev/shm"]


def test_the_space_of_a_filesystem_is_that_of_statvfs() -> None:
    found = by_series(scraped(receiver({"filesystem": None}, None, SystemClock()))[0])
    limits = {key[2]: value for key, value in found.items() if key[0] == "system.filesystem.limit"}
    assert limits
    for mount, size in limits.items():
        statvfs = os.statvfs(mount)
        assert size == statvfs.f_blocks * statvfs.f_frsize


def test_a_hung_filesystem_costs_a_thread_and_not_the_others() -> None:
    calls, release, started = HangingCalls("test", timeout=1.0), threading.Event(), []

    def hang() -> None:
        started.append(1)
        release.wait()

    for _ in range(3):
        with pytest.raises(TimeoutError):
            calls.call("/mnt/lost", hang)
    assert calls.call("/", lambda: 7) == 7
    assert started == [1]
    release.set()


def cgroup_reader(root: Path) -> CgroupReader:
    files = HostFiles(str(root))
    files.is_mounted = False
    from otel_zernel_receivers.host.config import CgroupConfig

    return CgroupReader(CgroupConfig(), files)


def written(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def test_in_a_container_the_lowest_limit_of_all_cgroups_above_applies(tmp_path: Path) -> None:
    top = "sys/fs/cgroup"
    written(
        tmp_path,
        {
            "proc/self/cgroup": "0::/pod/container\n",
            f"{top}/cgroup.controllers": "cpu memory",
            f"{top}/pod/cpu.max": "150000 100000\n",
            f"{top}/pod/memory.max": "max\n",
            f"{top}/pod/container/cgroup.controllers": "cpu memory",
            f"{top}/pod/container/cpu.max": "max 100000\n",
            f"{top}/pod/container/cpu.stat": "usage_usec 2500000\nthrottled_usec 1000\n",
            f"{top}/pod/container/memory.max": "1000000\n",
            f"{top}/pod/container/memory.current": "700000\n",
            f"{top}/pod/container/memory.stat": "anon 1\ninactive_file 200000\n",
            f"{top}/pod/container/memory.events": "oom 2\noom_kill 1\n",
        },
    )
    assert {one.metric: one.value for one in cgroup_reader(tmp_path).read([])} == {
        "zernel.cgroup.cpu.time": 2.5,
        "zernel.cgroup.cpu.throttled.time": 0.001,
        "zernel.cgroup.cpu.limit": 1.5,
        "zernel.cgroup.memory.usage": 500000,
        "zernel.cgroup.memory.limit": 1000000,
        "zernel.cgroup.memory.oom_kills": 1,
    }


def test_version_1_of_cgroups_has_the_same_metrics(tmp_path: Path) -> None:
    top = "sys/fs/cgroup"
    written(
        tmp_path,
        {
            "proc/self/cgroup": "4:memory:/docker/abc\n3:cpu,cpuacct:/docker/abc\n0::/\n",
            f"{top}/cpuacct/cpuacct.usage": "3000000000\n",
            f"{top}/cpu/cpu.cfs_quota_us": "200000\n",
            f"{top}/cpu/cpu.cfs_period_us": "100000\n",
            f"{top}/cpu/cpu.stat": "nr_throttled 1\nthrottled_time 5000000000\n",
            f"{top}/memory/memory.usage_in_bytes": "900\n",
            f"{top}/memory/memory.stat": "total_inactive_file 100\n",
            f"{top}/memory/memory.limit_in_bytes": "9223372036854771712\n",
            f"{top}/memory/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n",
        },
    )
    assert {one.metric: one.value for one in cgroup_reader(tmp_path).read([])} == {
        "zernel.cgroup.cpu.time": 3.0,
        "zernel.cgroup.cpu.throttled.time": 5.0,
        "zernel.cgroup.cpu.limit": 2.0,
        "zernel.cgroup.memory.usage": 800,
        "zernel.cgroup.memory.oom_kills": 3,
    }


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become another user")
def test_files_of_another_users_processes_are_a_problem_once_each() -> None:
    """A child that is nobody scrapes: it may not read /proc/PID/io of root's processes."""
    code = (
        "import os\n"
        "from otel_zernel.component import PartialScrape\n"
        "from otel_zernel.testing import make_context\n"
        "from otel_zernel_receivers.host import HostReceiver\n"
        "config = HostReceiver.Config.model_validate({'scrapers': {'process': None}})\n"
        "root, nobody = (HostReceiver(config, make_context()) for _ in range(2))\n"
        "try: root.scrape()\n"  # imports all modules: nobody may not read them
        "except PartialScrape: pass\n"
        "os.setgid(65534); os.setuid(65534)\n"
        "for _ in range(2):\n"
        "    try: nobody.scrape(); print('complete')\n"
        "    except PartialScrape as partial: print(partial, partial.errors, partial.batch.point_count > 0)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", code]
    out = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.splitlines()
    first, again = (0 if line == "complete" else int(line.split(" process")[0]) for line in out)
    assert out[0].endswith("True")
    assert again < first  # only processes that have started meanwhile
