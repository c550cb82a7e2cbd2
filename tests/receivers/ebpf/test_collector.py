"""The collector dies, comes back, and gets by with little."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from otel_zernel.testing import until
from otel_zernel_receivers.ebpf.elf import ElfFile
from otel_zernel_receivers.ebpf.mappings import code_at
from otel_zernel_receivers.ebpf.processes import Library, Scanner
from tests.receivers.ebpf.standin import Program, Standin

ROOT = Path(__file__).parents[3]
NEEDED = ("bpf", "perfmon", "sys_ptrace")


@contextmanager
def collector(wrapper: Sequence[str] = ()) -> Iterator["subprocess.Popen[str]"]:
    """A collector that has attached."""
    command = [*wrapper, sys.executable, str(Path(__file__).with_name("collector.py"))]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT}/receivers"}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == "attached\n"
        yield process
        process.kill()


def counted(process: "subprocess.Popen[str]", pid: int) -> int:
    """The launches since the last question of the process with this pid, as the collector sees it."""
    assert process.stdin
    assert process.stdout
    print(file=process.stdin, flush=True)
    launches: dict[str, int] = json.loads(process.stdout.readline())
    return launches.get(str(pid), 0)


def has_probe(standin: Standin, program: Program) -> bool:
    """Whether the program's code differs from its file's where launches begin."""
    (process,) = [one for one in Scanner().scan().processes if one.id.pid == program.pid]
    (used,) = [one for one in process.files if one.library is Library.CUDART]
    with standin.cudart.open("rb") as file:
        offset = ElfFile(file.fileno()).find(["cudaLaunchKernel"])["cudaLaunchKernel"][0].offset
        file.seek(offset)
        return code_at(Path("/proc"), program.pid, used.mapping, offset, 1) != file.read(1)


async def test_a_killed_collector_leaves_nothing_behind_and_may_come_back(loadable: None, standin: Standin) -> None:
    with standin.start() as program:
        program.do("load libcudart.so.12")
        with collector() as first:
            program.do("cudaLaunchKernel times=10")
            assert counted(first, program.pid) == 10
            assert has_probe(standin, program)
            first.kill()
            first.wait()
        await until(lambda: not has_probe(standin, program))
        program.do("cudaLaunchKernel times=20")
        with collector() as second:
            program.do("cudaLaunchKernel times=30")
            assert counted(second, program.pid) == 30


def with_only(*capabilities: str) -> list[str]:
    """What a command is put behind to have these capabilities alone."""
    if not shutil.which("setpriv"):
        pytest.skip("setpriv (util-linux) is not installed")
    only = ",".join(["-all", *(f"+{name}" for name in capabilities)])
    return ["setpriv", f"--bounding-set={only}", f"--inh-caps={only}"]


def test_three_capabilities_suffice(loadable: None, standin: Standin) -> None:
    wrapper = with_only(*NEEDED)
    with standin.start() as program:
        program.do("load libcudart.so.12")
        with collector(wrapper) as process:
            status = Path(f"/proc/{process.pid}/status").read_text()
            assert int(status.split("CapEff:")[1].split()[0], 16).bit_count() == len(NEEDED)
            program.do("cudaLaunchKernel times=40")
            assert counted(process, program.pid) == 40


def test_a_job_in_a_folder_of_its_user_s_own_is_counted(loadable: None, standin: Standin) -> None:
    """As in most homes. Without the capability, root is another user there."""
    wrapper, nobody = with_only(*NEEDED, "dac_read_search"), 65534
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        home = Standin(Path(shutil.copytree(standin.folder, Path(folder, "home"))))
        home.folder.chmod(0o700)
        become = f"chown -R {nobody} {home.folder} && exec setpriv --reuid={nobody} --regid={nobody} --clear-groups"
        with home.start(wrapper=["sh", "-c", f'{become} "$@"', "-"]) as program:
            program.do("load libcudart.so.12")
            with collector(wrapper) as process:
                program.do("cudaLaunchKernel times=50")
                assert counted(process, program.pid) == 50


def test_a_collector_in_a_pid_namespace_tells_pids_of_that_namespace(loadable: None, standin: Standin) -> None:
    wrapper = ["unshare", "-p", "-f", "--mount-proc", "--kill-child"]
    if subprocess.run([*wrapper, "true"], check=False, capture_output=True).returncode:
        pytest.skip("no pid namespace can be made here")
    with collector(wrapper) as outside, standin.start() as stranger:
        inside = Path(f"/proc/{outside.pid}/task/{outside.pid}/children").read_text().split()[0]
        with standin.start(wrapper=["nsenter", "-t", inside, "-p", "-m"]) as program:
            for one in (program, stranger):
                one.do("load libcudart.so.12")
            assert counted(outside, 0) == 0
            for one in (program, stranger):
                one.do("cudaLaunchKernel times=10")
            (pid,) = set(program.calls("cudaLaunchKernel")["pid"].tolist())
            assert pid < stranger.pid
            assert counted(outside, pid) == 10
