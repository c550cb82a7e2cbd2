"""A scan finds the right processes and files, in a fake /proc made of files."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from otel_zernel_receivers.ebpf.processes.files.file_identity import FileIdentity, identity_of
from otel_zernel_receivers.ebpf.processes.files.mappings import open_located
from otel_zernel_receivers.ebpf.processes.files.used_files import MappedLibrary
from otel_zernel_receivers.ebpf.processes.procfs import ProcessId
from otel_zernel_receivers.ebpf.processes.scanner import MOST_FILES, Reason, Scanner, Selection
from tests.receivers.ebpf.processes.fake_proc import FakeProc

CUDART = "/usr/lib/libcudart.so.12"


@pytest.fixture
def proc(tmp_path: Path) -> FakeProc:
    return FakeProc(tmp_path)


def identity_at(path: Path) -> FileIdentity:
    with path.open("rb") as file:
        return identity_of(file.fileno())


def pids(scanner: Scanner) -> list[int]:
    return [process.id.pid for process in scanner.scan().processes]


@pytest.mark.parametrize(
    ("name", "library"),
    [
        ("libcudart.so.12", MappedLibrary.CUDART),
        ("libcudart.so", MappedLibrary.CUDART),
        ("libcudart-a7b20f20.so.11.0", MappedLibrary.CUDART),
        ("libcuda.so.1", MappedLibrary.CUDA),
        ("libcuda.so.580.159.04", MappedLibrary.CUDA),
        ("libnccl.so.2", MappedLibrary.NCCL),
        ("libtorch_cpu.so", MappedLibrary.TORCH_CPU),
        ("libtorch_cuda.so", MappedLibrary.TORCH_CUDA),
        ("libnccl-net.so", None),
        ("libcudadebugger.so.1", None),
        ("libcudart.sox", None),
        ("libc.so.6", None),
    ],
)
def test_libraries_are_recognized_by_their_file_names(proc: FakeProc, name: str, library: MappedLibrary | None) -> None:
    proc.add(7, [f"/opt/lib/{name}"])
    found = [used.library for process in Scanner(proc.root).scan().processes for used in process.files]
    assert found == ([library] if library else [])


def test_a_scan_has_every_fact_about_a_process(proc: FakeProc) -> None:
    environment = {"JOB": "bert", "SECRET": "x", "LONG": "9" * 1000}
    proc.add(7, [CUDART], name="pt_main_thread", cgroup="/kubepods/pod1", environment=environment, start_time=4711)
    (process,) = Scanner(proc.root, Selection(environment={"JOB": "*", "LONG": "*"})).scan().processes
    assert process.id == ProcessId(7, 4711)
    assert (process.own_pid, process.name, process.executable) == (7, "pt_main_thread", "python3.11")
    assert process.cgroups == ("/kubepods/pod1",)
    assert process.environment == {"JOB": "bert", "LONG": "9" * 256}
    assert process.parent == 4, "each field of the stat file holds its number"
    (used,) = process.files
    assert used.mapping.path == CUDART
    assert [(part.start, part.end, part.offset) for part in used.mapping.ranges] == [(0x7000, 0x8000, 0x1000)]


@pytest.mark.parametrize(
    ("command_line", "program"),
    [
        (b"python3\0-u\0/srv/train.py\0--lr\0", "train.py"),
        (b"python3\0-W\0\0-uc\0login('hunter2')\0", "python -c"),
        (b"python3 -uc login('hunter2')\0\0\0\0", "python -c"),
        (b"", ""),
    ],
)
def test_the_program_is_known_and_its_source_text_is_not(proc: FakeProc, command_line: bytes, program: str) -> None:
    proc.add(7, [CUDART], command_line=command_line)
    (process,) = Scanner(proc.root).scan().processes
    assert process.program == program


@pytest.mark.parametrize(("has_parent", "program"), [(True, "train.py"), (False, "")])
def test_a_spawned_process_runs_the_program_of_its_parent(proc: FakeProc, has_parent: bool, program: str) -> None:
    spawned = b"python3\0-c\0from multiprocessing.spawn import spawn_main; spawn_main(7)\0--multiprocessing-fork\0"
    proc.add(7, [CUDART], command_line=spawned)  # its parent is process 4
    if has_parent:
        proc.add(4)
    (process,) = Scanner(proc.root).scan().processes
    assert process.program == program


def test_control_groups_of_every_hierarchy_count(proc: FakeProc) -> None:
    proc.add(7, [CUDART])
    (proc.root / "7/cgroup").write_text("9:name=systemd:/\n4:memory:/docker/abc\n2:cpu:/fast\n0::/\n")
    assert Scanner(proc.root).scan().processes[0].cgroups == ("/", "/docker/abc", "/fast")
    for pattern, expected in (("/docker/*", [7]), ("/fast", [7]), ("/slow", [])):
        assert pids(Scanner(proc.root, Selection(cgroups=[pattern]))) == expected


def test_control_groups_of_containers_in_containers_count_in_every_hierarchy(proc: FakeProc) -> None:
    """cgroup v1 has 14 hierarchies, so the file is longer than a page."""
    proc.add(7, [CUDART])
    nested = "/".join(f"/kubepods-burstable-pod{pod}/cri-containerd-{'c' * 64}" for pod in range(4))
    lines = [f"{number}:name=h{number}:{nested}/{number}\n" for number in range(14, 0, -1)]
    (proc.root / "7/cgroup").write_text("".join(lines))
    assert sum(map(len, lines)) > 4096
    assert pids(Scanner(proc.root, Selection(cgroups=["*/1"]))) == [7]


def test_a_path_is_looked_up_in_the_root_of_the_process(proc: FakeProc) -> None:
    containers = {proc.add(7, [CUDART]), proc.add(8, [CUDART])}
    processes = Scanner(proc.root).scan().processes
    assert len({used.identity for process in processes for used in process.files}) == 2
    for process in processes:
        with open_located(process.files[0].file) as fd:
            assert os.pread(fd, 100, 0).decode() == f"libcudart.so.12 of root-{process.id.pid}"
    assert all((container / CUDART[1:]).exists() for container in containers)


def test_one_file_that_two_processes_map_has_one_identity(proc: FakeProc) -> None:
    first, second = proc.add(7, [CUDART]), proc.add(8, [CUDART])
    (second / CUDART[1:]).unlink()
    (second / CUDART[1:]).hardlink_to(first / CUDART[1:])
    (proc.root / "8/maps").write_text((proc.root / "7/maps").read_text())
    processes = Scanner(proc.root).scan().processes
    assert len(processes) == 2
    assert len({used.identity for process in processes for used in process.files}) == 1


def test_a_deleted_library_is_opened_by_its_mapping(proc: FakeProc, tmp_path: Path) -> None:
    library = proc.add(7, [CUDART]) / CUDART[1:]
    kept = library.rename(tmp_path / "kept")
    proc.delete(7, CUDART, keep=kept)
    (used,) = Scanner(proc.root).scan().processes[0].files
    assert used.mapping.deleted
    assert used.mapping.path == CUDART
    assert used.identity == identity_at(kept)


def test_a_replaced_library_is_opened_by_its_mapping(proc: FakeProc, tmp_path: Path) -> None:
    library = proc.add(7, [CUDART]) / CUDART[1:]
    kept = library.rename(tmp_path / "kept")
    library.write_text("another one")
    (proc.root / "7/map_files/7000-8000").symlink_to(kept)
    (used,) = Scanner(proc.root).scan().processes[0].files
    assert not used.mapping.deleted
    assert used.identity == identity_at(kept)


def test_an_unreachable_file_is_counted_and_its_process_is_kept(proc: FakeProc) -> None:
    proc.add(7, [CUDART])
    proc.delete(7, CUDART)
    scan = Scanner(proc.root).scan()
    assert [process.files for process in scan.processes] == [()]
    assert scan.skipped == {Reason.UNREACHABLE_FILE: 1}


def test_a_process_with_too_many_libraries_harms_only_itself(proc: FakeProc) -> None:
    proc.add(7, [CUDART])
    proc.add(8, [f"/tmp/libcudart-{number:08x}.so.12" for number in range(MOST_FILES + 8)])
    proc.add(9, [CUDART])
    scan = Scanner(proc.root).scan()
    assert sorted(len(process.files) for process in scan.processes) == [1, 1, MOST_FILES]
    assert scan.skipped == {Reason.TOO_MANY_FILES: 8}


def test_a_replacement_of_a_located_file_is_not_opened(proc: FakeProc) -> None:
    library = proc.add(7, [CUDART]) / CUDART[1:]
    (used,) = Scanner(proc.root).scan().processes[0].files
    library.rename(library.with_suffix(".old"))
    library.write_text("another one")
    with pytest.raises(FileNotFoundError, match="the path leads to another file now"), open_located(used.file):
        pass


def test_a_fifo_instead_of_a_library_does_not_block(proc: FakeProc) -> None:
    library = proc.add(7, [CUDART]) / CUDART[1:]
    library.unlink()
    os.mkfifo(library)
    assert Scanner(proc.root).scan().skipped == {Reason.UNREACHABLE_FILE: 1}


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        (Selection(), [7, 8]),
        (Selection(names=["python*"]), [7]),
        (Selection(names=["train"]), [8]),
        (Selection(names=["nothing", "*ain"]), [8]),
        (Selection(cgroups=["/kubepods/*"]), [7]),
        (Selection(environment={"JOB": "*"}), [8]),
        (Selection(environment={"JOB": "b*", "RANK": "0"}), []),
        (Selection(names=["python*"], cgroups=["/other"]), []),
        (Selection(names=["python*"], cgroups=["/kubepods/*"], environment={"RANK": "0"}), [7]),
    ],
)
def test_a_selection_selects_processes_that_meet_every_condition(
    proc: FakeProc, selection: Selection, expected: list[int]
) -> None:
    proc.add(7, [CUDART], cgroup="/kubepods/pod1", environment={"RANK": "0"})
    proc.add(8, [CUDART], name="x", executable="/opt/train", environment={"JOB": "bert"})
    assert pids(Scanner(proc.root, selection)) == expected


def test_processes_are_in_the_order_of_their_start(proc: FakeProc) -> None:
    for pid, start_time in ((7, 300), (8, 100), (9, 200)):
        proc.add(pid, [CUDART], start_time=start_time)
    assert pids(Scanner(proc.root)) == [8, 9, 7]


def test_processes_without_permission_are_counted(unprivileged: Path) -> None:
    proc = FakeProc(unprivileged)
    proc.add(7, [CUDART])
    proc.add(8, [CUDART])
    (proc.root / "8/maps").chmod(0)
    uid = os.geteuid()
    if not uid:
        os.seteuid(65534)
    try:
        scan = Scanner(proc.root).scan()
    finally:
        os.seteuid(uid)
    assert [process.id.pid for process in scan.processes] == [7]
    assert scan.skipped == {Reason.PERMISSION: 1}


@pytest.fixture
def unprivileged() -> Iterator[Path]:
    """A folder that every user may enter."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.mark.parametrize("missing", ["maps", "stat", "comm", "cgroup", "status"])
def test_a_process_that_ends_during_the_scan_is_skipped(proc: FakeProc, missing: str) -> None:
    proc.add(7, [CUDART], pids=[7, 1])
    proc.add(8, [CUDART])
    (proc.root / "7" / missing).unlink()
    expected = [7, 8] if missing == "status" else [8]  # only read if /proc belongs to another namespace
    assert pids(Scanner(proc.root)) == expected


def test_a_scan_forgets_ended_processes(proc: FakeProc) -> None:
    proc.add(7, [CUDART])
    scanner = Scanner(proc.root)
    assert pids(scanner) == [7]
    (proc.root / "7/maps").write_text("")
    assert pids(scanner) == []


def test_a_reused_pid_is_another_process(proc: FakeProc) -> None:
    proc.add(7, [CUDART], start_time=100)
    scanner = Scanner(proc.root)
    (before,) = scanner.scan().processes
    stat = proc.root / "7/stat"
    stat.write_text(stat.read_text().replace(" 100 ", " 200 "))
    (after,) = scanner.scan().processes
    assert before.id != after.id


def test_a_missing_proc_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Scanner(tmp_path / "proc").scan()


def test_names_with_any_bytes_become_valid_text(proc: FakeProc) -> None:
    proc.add(7, [CUDART], name=os.fsdecode(b"tr\xffin"), executable=os.fsdecode(b"/opt/tr\xffin"))
    (process,) = Scanner(proc.root).scan().processes
    assert (process.name, process.executable) == ("tr\N{REPLACEMENT CHARACTER}in",) * 2
