"""Scans of the real /proc: containers, deleted and replaced libraries, executables, pid namespaces."""

import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from otel_zernel_receivers.ebpf.binaries.elf import ElfFile
from otel_zernel_receivers.ebpf.processes.files.file_identity import identity_of
from otel_zernel_receivers.ebpf.processes.files.mappings import open_located
from otel_zernel_receivers.ebpf.processes.files.used_files import MappedLibrary, UsedFile
from otel_zernel_receivers.ebpf.processes.pid_namespace import PidNamespace
from otel_zernel_receivers.ebpf.processes.scanner import ScannedProcess, Scanner, Selection
from tests.receivers.ebpf.files import code_at, open_elf
from tests.receivers.ebpf.standin import Program, Standin

ROOT = Path(__file__).parents[4]

pytestmark = pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="there is no Linux /proc")


def allowed(*command: str) -> bool:
    """Whether a privileged command works here."""
    return bool(shutil.which(command[0])) and not subprocess.run(command, capture_output=True, check=False).returncode


def map_files_work() -> bool:
    """Whether links in map_files may be followed."""
    try:
        return next(Path("/proc/self/map_files").iterdir()).is_file()
    except OSError:
        return False


needs_mounts = pytest.mark.skipif(
    not allowed("unshare", "-m", "mount", "-t", "tmpfs", "tmpfs", "/mnt"), reason="mount namespaces need CAP_SYS_ADMIN"
)
needs_pid_namespaces = pytest.mark.skipif(
    not allowed("unshare", "-p", "-f", "true"), reason="pid namespaces need CAP_SYS_ADMIN"
)
needs_map_files = pytest.mark.skipif(not map_files_work(), reason="map_files need CAP_CHECKPOINT_RESTORE")


@pytest.fixture
def own_copy(standin: Standin, tmp_path: Path) -> Standin:
    """A copy of the stand-ins, which a test may delete."""
    return copied(standin, tmp_path / "copy")


def copied(standin: Standin, folder: Path) -> Standin:
    folder.mkdir()
    for path in (standin.cudart, standin.cuda, standin.nccl, standin.program):
        shutil.copy(path, folder)
    return Standin(folder)


def found(scanner: Scanner, program: Program) -> ScannedProcess | None:
    return next((process for process in scanner.scan().processes if process.id.pid == program.pid), None)


def cudart_of(program: Program) -> UsedFile:
    process = found(Scanner(), program)
    assert process
    return next(used for used in process.files if used.library is MappedLibrary.CUDART)


def offset_of(used: UsedFile, function: str) -> int:
    with open_located(used.file) as fd:
        (symbol,) = ElfFile(fd).find([function])[function]
        return symbol.offset


def offset_of_launch(used: UsedFile) -> int:
    return offset_of(used, "cudaLaunchKernel")


def test_libraries_are_found_when_they_are_loaded(standin: Standin) -> None:
    scanner = Scanner(selection=Selection(environment={"JOB": "*"}))
    with standin.start(environment={"JOB": "bert"}) as program:
        program.do("sleep ms=0")
        assert found(scanner, program) is None
        program.do("load libnccl.so.2")
        process = found(scanner, program)
        assert process
        assert [used.library for used in process.files] == [MappedLibrary.NCCL]
        program.do("load libcudart.so.12")
        program.do("cudaLaunchKernel")
        process = found(scanner, program)
        assert process
        assert {used.library for used in process.files} == {
            MappedLibrary.NCCL,
            MappedLibrary.CUDART,
            MappedLibrary.CUDA,
        }
        assert process.environment == {"JOB": "bert"}
        assert process.parent == os.getpid()
        assert process.name == process.executable == "program"
    assert found(scanner, program) is None


def test_an_executable_that_exports_cuda_is_found(standin: Standin) -> None:
    with standin.start(program=standin.static_program) as program:
        program.do("sleep ms=0")
        process = found(Scanner(), program)
        assert process
        assert [used.library for used in process.files] == [MappedLibrary.EXECUTABLE]
        assert offset_of_launch(process.files[0])


def test_each_fork_is_a_process(standin: Standin) -> None:
    with standin.start(loads=["libcudart.so.12"]) as program:
        program.send("cudaLaunchKernel work=3600000000000 forks=1")
        program.send("cudaDeviceSynchronize forks=1")
        while not (children := program.calls("cudaDeviceSynchronize")).size:
            os.sched_yield()
        child = int(children[0]["pid"])
        identities = {
            used.identity
            for process in Scanner().scan().processes
            if process.id.pid in (child, program.pid)
            for used in process.files
            if used.library is MappedLibrary.CUDART
        }
        assert len(identities) == 1
        program.kill()


@needs_map_files
def test_a_deleted_library_can_still_be_read(own_copy: Standin) -> None:
    with own_copy.start(loads=["libcudart.so.12"]) as program:
        expected = offset_of_launch(cudart_of(program))
        own_copy.cudart.unlink()
        used = cudart_of(program)
        assert used.mapping.deleted
        assert used.mapping.path == str(own_copy.cudart)
        assert offset_of_launch(used) == expected


@needs_map_files
def test_a_replaced_library_is_another_file(own_copy: Standin, standin: Standin) -> None:
    with own_copy.start(loads=["libcudart.so.12"]) as old:
        original = cudart_of(old)
        Path(shutil.copy(standin.cudart, own_copy.folder / "new")).replace(own_copy.cudart)
        with own_copy.start(loads=["libcudart.so.12"]) as new:
            assert cudart_of(new).identity != cudart_of(old).identity
            assert cudart_of(old).identity == original.identity
            with own_copy.cudart.open("rb") as file:
                assert cudart_of(new).identity == identity_of(file.fileno())


@needs_mounts
def test_a_library_in_another_mount_namespace_is_found(standin: Standin, tmp_path: Path) -> None:
    container = tmp_path / "container"
    container.mkdir()
    script = (
        f'mount -t tmpfs tmpfs {container} && cp {standin.folder}/lib*.so.* {standin.program} {container} && exec "$@"'
    )
    wrapper = ["unshare", "-m", "sh", "-c", script, "-"]
    with standin.start(container / "program", wrapper=wrapper, loads=["libcudart.so.12"]) as program:
        used = cudart_of(program)
        assert used.mapping.path == str(container / "libcudart.so.12")
        assert not (container / "libcudart.so.12").exists(), "not in this namespace"
        with open_elf(standin.cudart) as elf:
            assert offset_of_launch(used) == elf.find(["cudaLaunchKernel"])["cudaLaunchKernel"][0].offset


@pytest.fixture
def start_in_overlay(standin: Standin, tmp_path: Path) -> Callable[[str], Program]:
    """Starts the program in a container whose image is the stand-ins' folder, after a command in that container."""
    image = copied(standin, tmp_path / "image")

    def start(command: str) -> Program:
        container = tmp_path / os.urandom(4).hex()
        for folder in ("upper", "work", "root"):
            (container / folder).mkdir(parents=True)
        layers = f"lowerdir={image.folder},upperdir={container}/upper,workdir={container}/work"
        mount = f"mount -t overlay overlay -o {layers} {container}/root"
        script = f'{mount} && cd {container}/root && {command} && exec "$@"'
        if not allowed("unshare", "-m", "sh", "-c", mount):
            pytest.skip("no overlay can be mounted here")
        return standin.start(container / "root/program", wrapper=["unshare", "-m", "sh", "-c", script, "-"])

    return start


def test_two_containers_of_one_image_share_a_library(start_in_overlay: Callable[[str], Program]) -> None:
    with start_in_overlay("true") as first, start_in_overlay("true") as second:
        identities = set()
        for program in (first, second):
            program.do("load libcudart.so.12")
            identities.add(cudart_of(program).identity)
        assert len(identities) == 1


def test_a_library_that_a_container_changed_is_its_own(start_in_overlay: Callable[[str], Program]) -> None:
    with start_in_overlay("true") as first, start_in_overlay("chmod 700 libcudart.so.12") as second:
        identities = set()
        for program in (first, second):
            program.do("load libcudart.so.12")
            identities.add(cudart_of(program).identity)
        assert len(identities) == 2


def test_code_in_the_file_is_the_executed_code(standin: Standin) -> None:
    with standin.start(loads=["libcudart.so.12"]) as program:
        used = cudart_of(program)
        offset = offset_of(used, "cudaGetDevice")  # which no collector probes, so its code is unchanged
        expected = standin.cudart.read_bytes()[offset : offset + 16]
        assert code_at(program.pid, used.mapping, offset, 16) == expected
        assert code_at(program.pid, used.mapping, 1 << 40, 16) is None


def inside(wrapper: Sequence[str], code: str) -> list[str]:
    """The words that Python code prints in another namespace, in which /proc is still that of this namespace."""
    prelude = """
        import os, sys
        from pathlib import Path
        from otel_zernel_receivers.ebpf.processes.pid_namespace import PidNamespace
        namespace = PidNamespace(Path("/proc"))
        outer = int(os.readlink("/proc/self"))
    """
    command = [*wrapper, sys.executable, "-c", textwrap.dedent(prelude) + textwrap.dedent(code)]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT}/libraries:{ROOT}/receivers"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.split()


def test_pids_of_the_collector_s_own_proc_are_not_translated() -> None:
    assert PidNamespace(Path("/proc")).pid_of(os.getpid()) == os.getpid()


@needs_pid_namespaces
def test_pids_of_a_foreign_proc_are_translated() -> None:
    code = f"""
        child = os.fork()
        if not child:
            os.execvp("sleep", ["sleep", "1000"])
        children = Path(f"/proc/{{outer}}/task/{{outer}}/children").read_text().split()
        print(os.getpid(), namespace.pid_of(outer), child, namespace.pid_of(int(children[0])))
        print(outer != os.getpid(), namespace.pid_of({os.getpid()}))
        os.kill(child, 9)
    """
    own, translated, child, translated_child, differs, outside = inside(["unshare", "-p", "-f"], code)
    assert (own, child) == (translated, translated_child)
    assert (differs, outside) == ("True", "None")


@needs_pid_namespaces
def test_a_process_in_a_lower_namespace_has_a_pid_here_and_one_in_a_sibling_has_none() -> None:
    code = """
        import subprocess
        below = subprocess.Popen(["unshare", "-p", "-f", "--kill-child", "sleep", "1000"])
        def children(pid):
            return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
        while not children(outer) or not (sleeping := children(children(outer)[0])):
            os.sched_yield()
        deepest = Path(f"/proc/{sleeping[0]}/status").read_text()
        nspid = next(line for line in deepest.splitlines() if line.startswith("NSpid")).split()
        print(len(nspid), nspid[2], namespace.pid_of(sleeping[0]))
        below.kill()
        below.wait()
    """
    count, expected, translated = inside(["unshare", "-p", "-f"], code)
    assert count == "4", "its name and three pids"
    assert expected == translated


@needs_pid_namespaces
def test_a_process_that_kernel_programs_cannot_identify_is_skipped_and_counted(standin: Standin) -> None:
    use = f"import ctypes; ctypes.CDLL({str(standin.cudart)!r}); print(1, flush=True); input()"
    code = f"""
        import subprocess
        from otel_zernel_receivers.ebpf.processes.scanner import Scanner, Selection
        def skipped(*wrapper):
            command = [*wrapper, sys.executable, "-c", {use!r}]
            pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={{**os.environ, "NAMED": "no"}})
            with subprocess.Popen(command, **pipes) as process:
                process.stdout.readline()
                scan = Scanner(selection=Selection(environment={{"NAMED": "no"}})).scan()
            print(len(scan.processes), "below_pid_namespace" in scan.skipped)
        skipped()
        skipped("unshare", "-p", "-f", "--kill-child")
    """
    identified = inside(["unshare", "-p", "-f", "--mount-proc"], code)
    assert identified == ["1", "False", "0", "True"]
    assert inside([], code) == ["1", "False", "1", "False"], "the initial namespace can identify all processes"
