"""A collector that is killed, one with few capabilities, and one in a pid namespace."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from otel_zernel.testing import PATIENCE, until
from otel_zernel_receivers.ebpf.binaries.elf import ElfFile
from otel_zernel_receivers.ebpf.probes.attach_modes import Mode
from otel_zernel_receivers.ebpf.processes.files.used_files import MappedLibrary
from otel_zernel_receivers.ebpf.processes.scanner import Scanner
from tests.receivers.ebpf.capabilities import capabilities
from tests.receivers.ebpf.files import code_at
from tests.receivers.ebpf.standin import Program, Standin
from tests.receivers.ebpf.talking import Talker, talking
from tests.receivers.ebpf.watching import best_mode
from tests.waiting import wait_for

ROOT = Path(__file__).parents[3]
NEEDED = ("bpf", "perfmon", "sys_ptrace")


def collector(wrapper: Sequence[str] = ()) -> AbstractContextManager[Talker]:
    """A collector after it has attached."""
    environment = {"PYTHONPATH": f"{ROOT}:{ROOT}/libraries:{ROOT}/receivers"}
    command = [*wrapper, sys.executable, str(Path(__file__).with_name("collector.py"))]
    return talking(*command, first="attached", environment=environment)


def answer(process: Talker) -> dict[str, dict[str, int]]:
    """The collector's counts since the last request: `launches`, `samples` and `ranks` by pid."""
    counts: dict[str, dict[str, int]] = json.loads(process.ask())
    return counts


def counted(process: Talker, pid: int) -> int:
    """The launches since the last request, of the process with this pid in the collector's namespace."""
    return answer(process)["launches"].get(str(pid), 0)


def has_probe(standin: Standin, program: Program) -> bool:
    """Whether the program's code differs from its file at the first instruction of launches."""
    (process,) = [process for process in Scanner().scan().processes if process.id.pid == program.pid]
    (used,) = [file for file in process.files if file.library is MappedLibrary.CUDART]
    with standin.cudart.open("rb") as file:
        offset = ElfFile(file.fileno()).find(["cudaLaunchKernel"])["cudaLaunchKernel"][0].offset
        file.seek(offset)
        return code_at(program.pid, used.mapping, offset, 1) != file.read(1)


async def test_a_killed_collector_leaves_nothing_behind_and_may_come_back(loadable: None, standin: Standin) -> None:
    with standin.start(loads=["libcudart.so.12"]) as program:
        with collector() as first:
            program.do("cudaLaunchKernel times=10")
            assert counted(first, program.pid) == 10
            assert has_probe(standin, program)
            first.kill()
        await until(lambda: not has_probe(standin, program), within=2 * PATIENCE)  # another collector may probe it, too
        program.do("cudaLaunchKernel times=20")
        with collector() as second:
            program.do("cudaLaunchKernel times=30")
            assert counted(second, program.pid) == 30


def needed_by_mode() -> tuple[str, ...]:
    """The capability that perf links need and other modes do not."""
    return ("sys_admin",) if best_mode() is Mode.PERF else ()


def with_only(*names: str) -> list[str]:
    """The wrapper that limits a command to these capabilities and those of the best mode."""
    return capabilities(*names, *needed_by_mode())


def test_few_capabilities_suffice_for_counts_and_samples(loadable: None, standin: Standin) -> None:
    with standin.start(loads=["libcudart.so.12"]) as program, collector(with_only(*NEEDED)) as process:
        status = Path(f"/proc/{process.pid}/status").read_text()
        assert int(status.split("CapEff:")[1].split()[0], 16).bit_count() == len(NEEDED) + len(needed_by_mode())
        program.do("cudaLaunchKernel times=40")
        assert counted(process, program.pid) == 40

        def is_sampled() -> bool:
            program.do("cudaLaunchKernel times=100000")
            return answer(process)["samples"].get(str(program.pid), 0) > 0

        wait_for(is_sampled, "launches are sampled")


@contextmanager
def job_of_nobody(
    standin: Standin, home_mode: int, program: str = "program", cwd: str = ".", **environment: str
) -> Iterator[Program]:
    """A job of another user in the folder `project` of that user's home."""
    nobody = 65534
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        home = Path(folder, "home")
        project = standin.copy_to(home / "project")
        project.folder.chmod(0o755)
        home.chmod(home_mode)
        become = f"chown -R {nobody} {home} && cd {home / cwd} && exec setpriv --reuid={nobody} --regid={nobody}"
        wrapper = ["sh", "-c", f'{become} --clear-groups "$@"', "-"]
        with project.start(project.folder / program, wrapper=wrapper, environment=environment) as job:
            yield job


def test_few_capabilities_suffice_for_the_rank_of_another_user_s_job(loadable: None, standin: Standin) -> None:
    ranks = {"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "8"}
    with job_of_nobody(standin, 0o755, **ranks) as program:
        program.do("load libcudart.so.12")
        with collector(with_only(*NEEDED)) as process:
            program.do("cudaLaunchKernel work=20000000")
            program.do("cudaDeviceSynchronize")
            counts = answer(process)
            assert (counts["launches"], counts["ranks"]) == ({str(program.pid): 1}, {str(program.pid): 3})


@pytest.mark.parametrize(
    ("program", "cwd", "capabilities"),
    [
        ("program", ".", (*NEEDED, "dac_read_search")),
        ("program", "project", NEEDED),
        ("static_program", ".", NEEDED),
    ],
    ids=["with CAP_DAC_READ_SEARCH", "below its working folder", "the executable"],
)
def test_a_job_in_a_home_folder_closed_to_the_collector_is_counted(
    loadable: None, standin: Standin, program: str, cwd: str, capabilities: Sequence[str]
) -> None:
    """Without CAP_DAC_READ_SEARCH, root may not enter it either."""
    with job_of_nobody(standin, 0o700, program, cwd) as job:
        job.do("sleep ms=0" if program == "static_program" else "load libcudart.so.12")
        with collector(with_only(*capabilities)) as process:
            job.do("cudaLaunchKernel times=50")
            assert counted(process, job.pid) == 50


def test_a_library_in_a_home_folder_closed_to_the_collector_is_not_probed(loadable: None, standin: Standin) -> None:
    with job_of_nobody(standin, 0o700) as job:
        job.do("load libcudart.so.12")
        with collector(with_only(*NEEDED)) as process:
            job.do("cudaLaunchKernel times=50")
            assert counted(process, job.pid) == 0


def test_a_collector_in_a_pid_namespace_emits_pids_of_that_namespace(loadable: None, standin: Standin) -> None:
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
