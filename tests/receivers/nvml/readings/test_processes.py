"""Mapping pids with the `/proc` of the host, of a container, and of a container that has mounted the host's."""

import os
from pathlib import Path

import pytest

from otel_zernel_receivers.nvml.readings.processes import INITIAL_PID_NAMESPACE, ProcessNames
from tests.receivers.nvml.reading import ended, values
from tests.receivers.nvml.running import Boot, Host

UTILIZATION = "zernel.gpu.process.utilization"
INNER = "pid:[4026532999]"


def process(proc: Path, pid: str, namespace: str, *, nspid: str = "", opens: str = "", exe: str = "") -> None:
    """Adds a process to a `/proc`."""
    folder = proc / pid
    (folder / "ns").mkdir(parents=True)
    (folder / "fd").mkdir()
    (folder / "ns" / "pid").symlink_to(namespace)
    (folder / "status").write_text(f"Name:\tcomm\nNSpid:\t{nspid or pid}\n")
    if opens:
        (folder / "fd" / "3").symlink_to(opens)
    if exe:
        (folder / "exe").symlink_to(exe)


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """The host's `/proc`: 1 is init, 100 trains on the host, 200 is pid 7 in a container."""
    process(tmp_path, "1", INITIAL_PID_NAMESPACE)
    process(tmp_path, "100", INITIAL_PID_NAMESPACE, exe="/usr/bin/python3.11 (deleted)")
    process(tmp_path, "200", INNER, nspid="200\t7", exe="/opt/train")
    return tmp_path


def test_on_the_host_pids_are_those_of_the_driver(host: Path) -> None:
    process(host, "self", INITIAL_PID_NAMESPACE)
    names = ProcessNames(host)
    assert names.attributes(100) == {"process.pid": 100, "process.executable.name": "python3.11"}
    assert names.attributes(200) == {"process.pid": 200, "process.executable.name": "train"}
    assert names.attributes(999) == {"process.pid": 999}  # has ended


def test_with_the_hosts_proc_a_process_in_the_collectors_container_gets_its_pid_there(host: Path) -> None:
    process(host, "self", INNER)
    names = ProcessNames(host)
    assert names.attributes(200) == {"process.pid": 7, "process.executable.name": "train"}
    assert names.attributes(100) == {
        "process.pid": 100,
        "process.executable.name": "python3.11",
        "zernel.process.pid_namespace": "host",
    }


def test_in_a_container_a_pid_is_mapped_only_if_the_process_uses_a_gpu(tmp_path: Path) -> None:
    process(tmp_path, "self", INNER)
    process(tmp_path, "1", INNER, exe="/bin/sh")
    process(tmp_path, "42", INNER, opens="/dev/nvidia0", exe="/opt/train")
    names = ProcessNames(tmp_path)
    assert names.attributes(42) == {"process.pid": 42, "process.executable.name": "train"}
    assert names.attributes(1) == {"process.pid": 1, "zernel.process.pid_namespace": "unknown"}


def test_a_name_that_is_not_utf_8_is_still_sent(host: Path, driver: Boot) -> None:
    process(host, "self", INITIAL_PID_NAMESPACE)
    process(host, "300", INITIAL_PID_NAMESPACE, exe=os.fsdecode(b"/opt/tr\xff"))
    driver("h200").apply("gpu 0", "ComputeRunningProcesses = 300 5")
    with Host({"processes": {"proc": str(host)}}).gpus() as gpus:
        held = values(gpus[0].scrape(), "zernel.gpu.process.memory.usage")
    assert held == {"process.pid=300 process.executable.name=tr\ufffd": 5}


def test_the_memory_of_a_process_of_two_types_counts_once(driver: Boot) -> None:
    kinds = ("Compute", "Graphics", "MPSCompute")
    driver("h200").apply("gpu 0", *(f"{kind}RunningProcesses = 9 5" for kind in kinds))
    with Host().gpus() as gpus:
        batch = gpus[0].scrape()
    assert list(values(batch, "zernel.gpu.process.memory.usage").values()) == [5]
    assert list(values(batch, "zernel.gpu.processes").values()) == [1, 1, 1]


def test_without_an_executable_the_name_is_that_of_the_command(host: Path) -> None:
    process(host, "self", INITIAL_PID_NAMESPACE)
    assert ProcessNames(host).attributes(1) == {"process.pid": 1, "process.executable.name": "comm"}


def test_utilization_is_the_mean_of_the_samples_since_the_last_scrape(host: Path, driver: Boot) -> None:
    process(host, "self", INITIAL_PID_NAMESPACE)
    controls = driver("h100x8")
    with Host({"processes": {"proc": str(host)}}).gpus() as gpus:
        first = values(gpus[0].scrape(), "zernel.gpu.process.utilization")
        controls.apply("gpu 0", "ProcessUtilization += 100 2000000 50 10 0 0", "ComputeRunningProcesses += 100 5")
        second = gpus[0].scrape()
    assert first["process.pid=4242 zernel.gpu.engine=sm"] == pytest.approx(0.98)
    process_100 = "process.pid=100 process.executable.name=python3.11"
    assert values(second, "zernel.gpu.process.utilization")[f"{process_100} zernel.gpu.engine=sm"] == 0.5
    assert values(second, "zernel.gpu.process.memory.usage")[process_100] == 5
    assert values(second, "zernel.gpu.processes")["zernel.gpu.process.type=compute"] == 2


def test_a_listed_process_that_did_not_use_the_gpu_has_utilization_0(driver: Boot) -> None:
    driver("h200").apply("gpu 0", "ComputeRunningProcesses = 77 5")
    with Host().gpus() as gpus:
        idle = values(gpus[0].scrape(), UTILIZATION)
    assert [value for name, value in idle.items() if "process.pid=77" in name] == [0.0]


def test_the_series_of_a_process_that_has_left_the_gpu_end_once(driver: Boot) -> None:
    controls = driver("h200")
    controls.apply("gpu 0", "ComputeRunningProcesses = 77 5")
    with Host().gpus() as gpus:
        first = gpus[0].scrape()
        controls.apply("gpu 0", "ComputeRunningProcesses =")
        second, third = gpus[0].scrape(), gpus[0].scrape()
    for metric in (UTILIZATION, "zernel.gpu.process.memory.usage"):
        assert ended(first, metric) == ended(third, metric) == set()
        assert ended(second, metric) == {name for name in values(first, metric) if "process.pid=77" in name} != set()
        assert not [name for name in values(second, metric) if "process.pid=77" in name]


def test_no_series_ends_while_the_driver_does_not_list_processes(driver: Boot) -> None:
    controls = driver("h200")
    controls.apply("gpu 0", "ComputeRunningProcesses = 77 5")
    with Host().gpus() as gpus:
        gpus[0].scrape()
        controls.apply("gpu 0", "ComputeRunningProcesses = !999")
        failed = gpus[0].scrape()
        controls.apply("gpu 0", "ComputeRunningProcesses =")
        answered = gpus[0].scrape()
    assert not ended(failed, "zernel.gpu.process.memory.usage")
    assert ended(answered, "zernel.gpu.process.memory.usage")
