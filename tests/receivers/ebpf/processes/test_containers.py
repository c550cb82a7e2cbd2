"""Programs are counted in containers, with replaced libraries, and for every kind of build."""

import logging
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from otel_zernel_receivers.ebpf.config import EbpfConfig
from tests.receivers.ebpf.standin import Program, Prologue, Standin
from tests.receivers.ebpf.standin.fixture import BuildStandin
from tests.receivers.ebpf.watching import Watch, calls

LAUNCH = "zernel.cuda.launch.latency"
Start = Callable[[str], Program]


@pytest.fixture
def start_in_container(standin: Standin, tmp_path: Path) -> Start:
    """Starts the program in its own container, after a command in that. All containers have one image, the folder of
    the stand-ins."""
    image = standin.copy_to(tmp_path / "image").folder

    def start(command: str) -> Program:
        container = tmp_path / os.urandom(4).hex()
        for folder in ("upper", "work", "root"):
            (container / folder).mkdir(parents=True)
        layers = f"lowerdir={image},upperdir={container}/upper,workdir={container}/work"
        mount = f"mount -t overlay overlay -o {layers} {container}/root"
        if subprocess.run(["unshare", "-m", "sh", "-c", mount], check=False, capture_output=True).returncode:
            pytest.skip("no overlay can be mounted here")
        script = f'{mount} && cd {container}/root && {command} && exec "$@"'
        wrapper = ["unshare", "-m", "sh", "-c", script, "-"]
        return standin.start(container / "root/program", wrapper=wrapper)

    return start


@pytest.mark.parametrize("command", ["true", "chmod 700 libcudart.so.12"], ids=["the same file", "a copy of it"])
def test_containers_of_one_image_are_counted_once_each(watch: Watch, start_in_container: Start, command: str) -> None:
    with start_in_container("true") as first, start_in_container(command) as second:
        for program in (first, second):
            program.do("load libcudart.so.12")
            watch.attach()
        first.do("cudaLaunchKernel times=100")
        second.do("cudaLaunchKernel times=50")
        batch = watch.read()
    assert calls(batch, LAUNCH, process_pid=first.pid) == 100
    assert calls(batch, LAUNCH, process_pid=second.pid) == 50


def test_a_program_in_a_pid_namespace_is_reported_with_its_pid_here(watch: Watch, standin: Standin) -> None:
    wrapper = ["unshare", "-p", "-f", "--kill-child"]
    if subprocess.run([*wrapper, "true"], check=False, capture_output=True).returncode:
        pytest.skip("no pid namespace can be made here")
    with standin.start(wrapper=wrapper, loads=["libcudart.so.12"]) as program:
        watch.attach()
        program.do("cudaLaunchKernel times=10")
        children = Path(f"/proc/{program.pid}/task/{program.pid}/children").read_text().split()
        batch = watch.read()
    assert calls(batch, LAUNCH, process_pid=int(children[0])) == 10


def test_a_deleted_library_is_probed_where_it_is_mapped(watch: Watch, standin: Standin, tmp_path: Path) -> None:
    own = standin.copy_to(tmp_path / "own")
    with own.start(loads=["libcudart.so.12"]) as program:
        own.cudart.unlink()
        watch.attach()
        program.do("cudaLaunchKernel times=10")
        assert calls(watch.read(), LAUNCH, process_pid=program.pid) == 10


_IN_MEMORY = """
import os, sys
library, name, *command = sys.argv[1:]
with open(library, "rb") as file:
    copy = os.memfd_create(name, 0)
    os.write(copy, file.read())
os.dup2(copy, 77)
os.execv(command[0], command)
"""


@pytest.mark.parametrize("name", ["libcudart.so.12", "a-name-that-says-nothing"])
def test_a_library_in_memory_is_probed(watch: Watch, standin: Standin, name: str) -> None:
    wrapper = [sys.executable, "-c", _IN_MEMORY, str(standin.cudart), name]
    with standin.start(
        wrapper=wrapper, environment={"LD_LIBRARY_PATH": str(standin.folder)}, loads=["/proc/self/fd/77"]
    ) as program:
        watch.attach()
        program.do("cudaLaunchKernel times=10")
        assert calls(watch.read(), LAUNCH, process_pid=program.pid, zernel_cuda_api="runtime") == 10


def test_users_of_a_library_and_of_its_replacement_are_both_counted(
    watch: Watch, standin: Standin, tmp_path: Path
) -> None:
    own = standin.copy_to(tmp_path / "own")
    with own.start(loads=["libcudart.so.12"]) as old:
        watch.attach()
        Path(shutil.copy(own.cudart, tmp_path / "new")).replace(own.cudart)  # as package managers do
        with own.start(loads=["libcudart.so.12"]) as new:
            watch.attach()
            old.do("cudaLaunchKernel times=10")
            new.do("cudaLaunchKernel times=20")
            batch = watch.read()
    assert calls(batch, LAUNCH, process_pid=old.pid, zernel_cuda_api="runtime") == 10
    assert calls(batch, LAUNCH, process_pid=new.pid, zernel_cuda_api="runtime") == 20


def test_a_library_that_is_loaded_late_is_probed_after_the_next_scan(fresh_watch: Watch, standin: Standin) -> None:
    with standin.start() as program:
        program.do("sleep ms=0")
        fresh_watch.attach()
        program.do("load libcudart.so.12")
        fresh_watch.attach()
        program.do("cudaLaunchKernel times=10")
        assert calls(fresh_watch.read(), LAUNCH, process_pid=program.pid) == 10


def test_an_executable_with_the_runtime_linked_in_is_probed(watch: Watch, standin: Standin) -> None:
    with standin.start(standin.static_program) as program:
        program.do("sleep ms=0")
        watch.attach()
        program.do("cudaLaunchKernel times=10")
        assert calls(watch.read(), LAUNCH, process_pid=program.pid, zernel_cuda_api="runtime") == 10


@pytest.mark.parametrize("prologue", ["endbr64", "stepped"])
def test_launches_are_probed_if_probes_are_cheap_or_never_are(
    watch: Watch, build_standin: BuildStandin, prologue: Prologue, caplog: pytest.LogCaptureFixture
) -> None:
    # On arm64 these functions begin with bti and with paciasp: their returns are counted, and the program survives.
    counted = 0 if prologue == "stepped" and platform.machine() == "x86_64" else 10
    caplog.set_level(logging.WARNING, "otel_zernel")
    with build_standin(prologue).start(loads=["libcudart.so.12"]) as program:
        watch.attach()
        program.do("cudaLaunchKernel times=10")
        program.do("cudaDeviceSynchronize times=3")
        batch = watch.read()
    assert calls(batch, LAUNCH, process_pid=program.pid, zernel_cuda_api="runtime") == counted
    assert calls(batch, "zernel.cuda.sync.wait", process_pid=program.pid) == 3
    assert ("would take 10 us" in caplog.text) == (not counted)


def test_launches_are_probed_at_any_cost_if_configured(loadable: None, build_standin: BuildStandin) -> None:
    stepped = build_standin("stepped")
    with Watch(EbpfConfig(single_stepped=True)) as watch, stepped.start(loads=["libcudart.so.12"]) as program:
        watch.attach()
        program.do("cudaLaunchKernel times=10")
        assert calls(watch.read(), LAUNCH, process_pid=program.pid, zernel_cuda_api="runtime") == 10
