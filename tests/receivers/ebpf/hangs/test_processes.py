"""What a process does is read from outside: real programs that wait in known ways, in real interpreters."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from otel_zernel_libraries.training.ledger import Activity
from otel_zernel_libraries.training.stacks import STANDARD_INPUT, THREADS, ChildNow, CodeLine, ProcessThreads, ThreadNow
from otel_zernel_receivers.ebpf.hangs.processes import ProcessReader, Since, Watched
from otel_zernel_receivers.ebpf.hangs.tasks import children_of, is_rank
from otel_zernel_receivers.ebpf.processes.procfs import ProcessFolder
from tests.receivers.ebpf.sampler.pythons import MINORS, python_of, python_on_musl
from tests.receivers.ebpf.talking import talking
from tests.waiting import wait_for

PROGRAM = Path(__file__).with_name("waiting.py")
LINES = PROGRAM.read_text("utf-8").splitlines()


def line_with(text: str) -> int:
    (line,) = (number for number, line in enumerate(LINES, 1) if text in line)
    return line


class Program:
    """A running program."""

    def __init__(self, pid: int, folder: Path) -> None:
        self.pid, self.folder = pid, folder
        self._reader = ProcessReader(lambda pid: ProcessFolder(Path("/proc"), pid), budget=60)

    def read(self, since: Since | None = None) -> ProcessThreads:
        return self._reader.read(Watched(self.pid, threads={self.pid: since} if since else {}))

    def main(self, is_there: Callable[[ThreadNow], bool]) -> ThreadNow:
        """The main thread, once it is where the test expects it."""

        def look() -> ThreadNow | None:
            main = self.read().threads[0]
            return main if main.is_main and is_there(main) else None

        return wait_for(look, "the main thread waits") or pytest.fail("it is not there")

    def number(self) -> str:
        """The number that the program has written."""
        return wait_for(lambda: (self.folder / "port").read_text() if (self.folder / "port").exists() else "")


def sleeping(children: Iterable[ChildNow]) -> list[ChildNow]:
    return [child for child in children if [thread.activity for thread in child.threads] == [Activity.TIMER]]


@contextmanager
def running(
    kind: str, folder: Path, *wrapper: str, python: str = sys.executable, environment: Mapping[str, str] | None = None
) -> Iterator[Program]:
    with talking(*wrapper, python, PROGRAM, kind, folder, environment=environment) as program:
        yield Program(program.pid, folder)


@pytest.mark.parametrize("minor", MINORS)
def test_a_thread_has_its_frames_with_lines_in_each_version_of_python(minor: int, tmp_path: Path) -> None:
    assert_sleeps(python_of(minor), tmp_path)


@pytest.mark.soak
def test_a_thread_on_musl_has_its_frames_with_lines(tmp_path: Path) -> None:
    assert_sleeps(python_on_musl(), tmp_path)


def assert_sleeps(python: str, folder: Path) -> None:
    with running("asleep", folder, python=python) as program:
        main = program.main(lambda main: main.activity is Activity.TIMER)
    assert main.lines == (
        CodeLine(str(PROGRAM), "asleep", line_with("def asleep") + 1),
        CodeLine(str(PROGRAM), "<module>", len(LINES)),
    )
    assert main.detail == "sleeps"


def test_a_thread_in_another_pid_namespace_has_its_frames(tmp_path: Path) -> None:
    namespaces = ("unshare", "--pid", "--fork", "--kill-child")
    if subprocess.run([*namespaces, "true"], check=False, capture_output=True).returncode:
        pytest.skip("pid namespaces need CAP_SYS_ADMIN")
    with running("asleep", tmp_path, *namespaces) as launcher:
        (child,) = wait_for(lambda: sleeping(launcher.read().children))
        main = child.threads[0]
        assert (main.thread, main.lines[0].function) == (child.pid, "asleep")


def test_the_files_of_pytorch_are_those_beside_its_mapped_library(tmp_path: Path) -> None:
    with running("checkout", tmp_path) as program:
        main = program.main(lambda main: main.activity is Activity.TIMER)
    _, mine, of_pytorch, *_ = main.lines
    assert (mine.file, mine.library_path) == (f"{tmp_path}/mine/torch/nn/modules/linear.py", "")
    assert (of_pytorch.function, of_pytorch.library_path) == ("forward", "torch/nn/modules/linear.py")


@pytest.mark.parametrize("minor", MINORS)
def test_the_thread_that_holds_the_gil_in_c_is_named(minor: int, tmp_path: Path) -> None:
    with running("gil", tmp_path, python=python_of(minor)) as program:
        main = program.main(lambda main: main.detail == "sleeps and holds the GIL")
        assert main.lines[0].function == "gil"

        def waiter() -> list[ThreadNow]:
            return [thread for thread in program.read().threads if thread.activity is Activity.GIL]

        assert wait_for(waiter)[0].detail.startswith(f"the GIL, which thread {program.pid} (")


@pytest.mark.parametrize(
    ("kind", "activity", "detail"),
    [
        pytest.param("mutex", Activity.LOCK, "the lock that it holds itself", id="a mutex that its waiter holds"),
        pytest.param(
            *("fifo", Activity.PIPE, "opens the pipe {folder}/fifo, which no other process has opened"),
            id="a pipe that nobody writes",
        ),
        pytest.param("asks", Activity.PIPE, f"reads {STANDARD_INPUT} (a pipe)", id="the standard input"),
        pytest.param("many_descriptors", Activity.PIPE, "waits for a pipe", id="one of very many descriptors"),
        pytest.param(
            "connection", Activity.SOCKET, "reads from a socket of 127.0.0.1:{port}", id="the peer of a connection"
        ),
        pytest.param(
            "server", Activity.SOCKET, "waits for connections to 127.0.0.1:{port}", id="the address of a server"
        ),
    ],
)
def test_the_object_of_a_wait_is_named(tmp_path: Path, kind: str, activity: Activity, detail: str) -> None:
    with running(kind, tmp_path) as program:
        main = program.main(lambda main: main.activity is activity)
        reading = program.read()
        assert main.detail == detail.format(folder=tmp_path, port=program.number() if "{port}" in detail else "")
    assert THREADS.read(THREADS.write(reading)) == reading, "it is the body of a record"


@pytest.mark.parametrize(
    ("kind", "activity", "function"),
    [
        pytest.param("busy", Activity.PYTHON, "busy", id="computes in Python"),
        pytest.param("polls", Activity.GPU_WAIT, "synchronize", id="polls the GPU"),
    ],
)
def test_a_thread_that_runs_has_the_activity_of_its_function(
    tmp_path: Path, kind: str, activity: Activity, function: str
) -> None:
    with running(kind, tmp_path) as program:
        main = program.main(lambda main: main.activity is activity)
    assert main.lines[0].function == function


def test_a_lock_without_an_owner_is_a_lock_at_its_line(tmp_path: Path) -> None:
    with running("lock", tmp_path) as program:
        main = program.main(lambda main: main.activity is Activity.LOCK)
    assert (main.detail, main.lines[0].line) == ("", line_with("lock.acquire()"))


def test_the_child_at_the_other_end_of_a_pipe_is_named(tmp_path: Path) -> None:
    with running("pipe_of_child", tmp_path) as program:
        main = program.main(lambda main: "(sleep)" in main.detail)

        (child,) = wait_for(lambda: sleeping(program.read().children), "the child is loaded and sleeps")
    assert (main.activity, main.detail) == (Activity.PIPE, f"reads a pipe of child {child.pid} (sleep)")


def test_a_name_that_is_no_text_is_replaced(tmp_path: Path) -> None:
    with running("odd_name", tmp_path) as program:
        main = program.main(lambda main: main.activity is Activity.PIPE)
        assert THREADS.write(program.read())
    assert main.detail.startswith(f"opens the pipe {tmp_path}/f\ufffd, ")


def test_a_locked_file_is_named_with_its_mount(tmp_path: Path) -> None:
    with running("file_lock", tmp_path) as program:
        main = program.main(lambda main: main.activity is Activity.LOCK)
    assert main.detail.startswith(f"waits for the lock of {tmp_path}/lock (")


def test_a_program_that_is_waited_for_is_named(tmp_path: Path) -> None:
    with running("program", tmp_path) as program:
        main = program.main(lambda main: "(sleep)" in main.detail)
        (child,) = program.read().children
    assert (main.activity, main.detail) == (Activity.CHILD, f"waits for the end of child {child.pid} (sleep)")


def test_a_stopped_process_is_stopped(tmp_path: Path) -> None:
    with running("stopped", tmp_path) as program:
        main = program.main(lambda main: bool(main.detail))
        process = program.read()
    assert (process.is_stopped, process.is_traced) == (True, False)
    assert (main.activity, main.detail, main.lines[0].function) == (Activity.UNKNOWN, "stopped by a signal", "stopped")


def test_a_dead_child_is_dead(tmp_path: Path) -> None:
    with running("zombie", tmp_path) as program:
        wait_for(lambda: [child.is_dead for child in program.read().children] == [True])
        assert [child.ending for child in program.read().children] == ["ended with exit code 3"]
        assert not program.read().is_stopped


def test_a_job_on_one_host_has_lost_a_rank_once_its_launcher_has_fewer_processes(tmp_path: Path) -> None:
    job = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
    with running("siblings", tmp_path, environment=job) as launcher:
        first, second = wait_for(lambda: launcher.read().children if len(launcher.read().children) == 2 else ())
        reader = ProcessReader(lambda pid: ProcessFolder(Path("/proc"), pid), budget=60)
        assert not reader.read(Watched(first.pid, silent=6.0)).has_lost_ranks
        os.kill(second.pid, signal.SIGKILL)
        wait_for(lambda: reader.read(Watched(first.pid, silent=6.0)).has_lost_ranks)
        assert not reader.read(Watched(first.pid, silent=4.0)).has_lost_ranks


@contextmanager
def behind_a_shell(environment: Mapping[str, str]) -> Iterator[int]:
    """The pid of a program that a shell of its own has started, as in a pane of tmux."""
    command = ["sh", "-c", '"$@"; exit', "sh", sys.executable, str(PROGRAM), "asleep", "."]
    with talking(*command, environment=environment) as shell:
        (pid,) = children_of(ProcessFolder(Path("/proc"), shell.pid))
        yield pid


def test_ranks_that_have_shells_of_their_own_are_one_job() -> None:
    job = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29511"}
    other = {**job, "MASTER_PORT": "29512", "RANK": "1"}
    now = 0.0
    reader = ProcessReader(lambda pid: ProcessFolder(Path("/proc"), pid), budget=60, monotonic=lambda: now)

    def has_lost(pid: int) -> bool:
        nonlocal now
        now += 10
        return reader.read(Watched(pid, silent=6.0)).has_lost_ranks

    with (
        behind_a_shell({**job, "RANK": "0"}) as first,
        behind_a_shell({**job, "RANK": "1"}) as second,
        behind_a_shell(other) as stranger,
    ):
        assert not has_lost(first)
        assert has_lost(stranger), "its job has two ranks, too"
        os.kill(second, signal.SIGKILL)
        wait_for(lambda: has_lost(first))


def test_the_activity_of_a_call_is_that_of_its_probe(tmp_path: Path) -> None:
    with running("asleep", tmp_path) as program:
        main = program.read(Since(Activity.COLLECTIVE, 7.0)).threads[0]
        assert (main.activity, main.seconds) == (Activity.COLLECTIVE, 7.0)
        main = wait_for(lambda: program.read(Since(Activity.LOCK, 7.0)).threads[0])
        assert main.seconds == 7.0


def test_a_wait_lasts_from_the_first_reading_on_that_has_it(tmp_path: Path) -> None:
    with running("lock", tmp_path) as program:
        program.main(lambda main: main.activity is Activity.LOCK)
        now = [100.0]
        reader = ProcessReader(lambda pid: ProcessFolder(Path("/proc"), pid), budget=60, monotonic=lambda: now[0])
        seconds = []
        for _ in range(3):
            seconds.append(reader.read(Watched(program.pid)).threads[0].seconds)
            now[0] += 4.0
    assert seconds[1] >= 4.0
    assert seconds[2] >= 8.0


@pytest.mark.parametrize("cpu", sorted(os.sched_getaffinity(0)))
def test_a_wait_that_began_before_the_first_reading_lasts_since_then_on_every_cpu(cpu: int, tmp_path: Path) -> None:
    if not Path("/proc/self/sched").exists():
        pytest.skip("the kernel has no /proc/PID/sched")
    begun = time.monotonic()
    with running("lock", tmp_path, "taskset", "--cpu-list", str(cpu)) as program:
        program.main(lambda main: main.activity is Activity.LOCK)

        def at_first_sight() -> float:
            reader = ProcessReader(lambda pid: ProcessFolder(Path("/proc"), pid), budget=60)
            return reader.read(Watched(program.pid)).threads[0].seconds

        seconds = wait_for(lambda: at_first_sight() if at_first_sight() > 1.0 else 0.0)
        assert seconds < time.monotonic() - begun


def test_a_wait_that_begins_again_and_again_in_one_line_is_new_each_time(tmp_path: Path) -> None:
    with running("naps", tmp_path) as program:
        now = [100.0]
        reader = ProcessReader(lambda pid: ProcessFolder(Path("/proc"), pid), budget=60, monotonic=lambda: now[0])
        for _ in range(3):
            assert reader.read(Watched(program.pid)).threads[0].seconds < 4.0
            runs = runs_of(program.pid) + 8
            wait_for(lambda: runs_of(program.pid) > runs)  # noqa: B023
            now[0] += 4.0


def runs_of(pid: int) -> int:
    """How often the main thread has got a CPU."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[2])


def test_threads_that_move_the_data_of_collectives_are_no_sign_of_life(tmp_path: Path) -> None:
    names = {7: ("python", "S"), 8: ("gloo_tcp_loop", "R"), 9: ("pt_nccl_watchdg", "R"), 10: ("omp (1)", "R")}
    (tmp_path / "7").mkdir()
    (tmp_path / "7/maps").touch()
    (tmp_path / "7/status").write_text("Name:\tpython\nState:\tS (sleeping)\nTracerPid:\t0\n")
    for tid, (name, state) in names.items():
        task = tmp_path / "7/task" / str(tid)
        task.mkdir(parents=True)
        (task / "stat").write_text(f"{tid} ({name}) {state} " + "1 " * 50)
        (task / "syscall").write_text("running" if state == "R" else "-1 0x7ffd 0x7f00")
        (task / "wchan").write_text("0")
        (task / "comm").write_text(f"{name}\n")
    (tmp_path / "7/stat").write_text((tmp_path / "7/task/7/stat").read_text())
    folder = ProcessFolder(tmp_path, 7)
    reading = ProcessReader(lambda pid: folder, tmp_path, budget=60).read(Watched(7))
    assert [thread.name for thread in reading.threads] == ["python", "omp (1)"]
    assert is_rank(folder)


def test_a_reading_keeps_to_its_budget_and_has_the_main_thread(tmp_path: Path) -> None:
    with running("gil", tmp_path) as program:
        reader = ProcessReader(lambda pid: ProcessFolder(Path("/proc"), pid), budget=0.0)
        (main,) = reader.read(Watched(program.pid)).threads
        assert main.is_main


def test_a_process_that_has_ended_cannot_be_read(tmp_path: Path) -> None:
    with running("asleep", tmp_path) as program:
        pass
    with pytest.raises(OSError, match="No such"):
        program.read()
