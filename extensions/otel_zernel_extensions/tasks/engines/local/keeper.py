"""The parent process of one local task: starts the command, waits for it, and writes its end to a file.

It runs as `python -I -S keeper.py FOLDER`, apart from the collector, so that the task survives a restart of the
collector, and its exit code is never lost. It imports few modules: it starts in about 30 ms and takes about 10 MB.
`folder.py` describes the files of the folder.
"""

# pathlib would double the time to start
# ruff: noqa: PTH104, PTH110, PTH116, PTH123, PTH208

import ctypes
import json
import os
import resource
import signal
import sys
import time

TYPE_CHECKING = False  # `typing` has it, too; without its import, the process starts earlier
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Json = dict[str, Any]

SLICE = 0.25  # seconds between two looks at the time limit and at the length of the output
BLOCK = 4096
_PUNCH_HOLE, _KEEP_SIZE = 2, 1  # fallocate(2)
_SET_CHILD_SUBREAPER, _CAP_AMBIENT, _AMBIENT_CLEAR_ALL = 36, 47, 4  # prctl(2)
_AWAITED = {signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
_LONGEST_PROBLEM = 4000  # bytes: less than a pipe holds (4096)
_NOT_EXECUTABLE, _NOT_FOUND = 126, 127  # as a shell


def stat(pid: int | str) -> list[int]:
    """Of a process: its parent, and the clock ticks from the boot to its start, which identify it with the pid."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return [0, 0]
    return [int(fields[1]), int(fields[19])]


def written(folder: str, name: str, value: "Json", *, sync: bool = False) -> None:
    """Writes a JSON file that appears complete. With `sync`, it survives a power failure."""
    draft = _draft(folder, name, value, sync)
    os.rename(draft, f"{folder}/{name}")
    if sync:
        _sync_folder(folder)


def claimed(folder: str, value: "Json") -> bool:
    """Makes the claim. False if there is one already, or if the folder is gone."""
    try:
        draft = _draft(folder, "claim", value, sync=True)
    except FileNotFoundError:
        return False
    try:
        os.link(draft, f"{folder}/claim")
    except (FileExistsError, FileNotFoundError):
        return False
    finally:
        _tried(os.unlink, draft)
    _tried(_sync_folder, folder)
    return True


def until_written(folder: str, name: str, value: "Json", *, sync: bool = False) -> None:
    """As `written`, and again each second while the disk is full or fails. Returns if the folder is deleted."""
    while True:
        try:
            written(folder, name, value, sync=sync)
            return
        except FileNotFoundError:
            return
        except OSError:
            time.sleep(1)


def children() -> "list[int]":
    """The children of this process, without those of its children."""
    try:
        with open(f"/proc/self/task/{os.getpid()}/children") as file:
            return [int(pid) for pid in file.read().split()]
    except OSError:  # a kernel without CONFIG_PROC_CHILDREN
        return [int(name) for name in os.listdir("/proc") if name.isdigit() and stat(name)[0] == os.getpid()]


class KeptCommand:
    """A command, from its start to its end."""

    def __init__(self, folder: str, task: "Json") -> None:
        self.folder = folder
        self.task = task
        self.pid = 0
        self.stage = "the start"  # the work before the command, for the message if it fails
        self.asked = ""  # why its end was asked for: `cancel`, `time`, `signal`
        self.kill_at: float | None = None
        self.cut = 0

    def run(self) -> "Json":
        """Runs the command, and returns the result."""
        if os.path.exists(f"{self.folder}/cancel"):
            return {"asked": "cancel", "ended": time.time()}
        started, begun = time.time(), time.monotonic()
        try:
            problems = self._start()
        except OSError as error:  # too many processes
            return {"reason": f"the command cannot be started: {error.strerror}", "ended": time.time()}
        limit = self.task["limits"]["time"]
        while not os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            info = signal.sigtimedwait(_AWAITED, SLICE)
            self._look(info, limit is not None and time.monotonic() - begun > limit)
        ended = time.time()
        _tried(os.killpg, self.pid, signal.SIGKILL)  # the pid is not reused before the next line
        _, status = os.waitpid(self.pid, 0)
        self._end_rest()
        problem = os.read(problems, _LONGEST_PROBLEM).decode("utf-8", "replace")
        return {"started": started, "ended": ended, **self._result(status, problem)}

    def _start(self) -> int:
        """Starts the command. Returns a descriptor that has the reason if it cannot be executed."""
        reading, writing = os.pipe2(os.O_CLOEXEC)
        self.pid = os.fork()
        if self.pid == 0:
            try:
                self._become()
            except BaseException as error:  # noqa: BLE001  # the parent reports it
                code = _NOT_FOUND if isinstance(error, FileNotFoundError) else _NOT_EXECUTABLE
                text = getattr(error, "strerror", None) or str(error)
                os.write(writing, f"{self.stage}: {text}".encode("utf-8", "replace")[:_LONGEST_PROBLEM])
                os._exit(code)
        os.close(writing)
        return reading

    def _become(self) -> None:
        """In the new process: becomes the command."""
        os.setsid()
        until_written(self.folder, "command", {"pid": (pid := os.getpid()), "start": stat(pid)[1], "time": time.time()})
        task = self.task
        if task["cgroup"]:
            self.stage = f"the control group {task['cgroup']}"
            with open(f"{task['cgroup']}/cgroup.procs", "w") as file:
                file.write("0")
        self.stage = "the limits"
        for name, (soft, hard) in task["rlimits"].items():
            resource.setrlimit(getattr(resource, name), (soft, hard))
        if task["cpus"]:
            os.sched_setaffinity(0, task["cpus"])
        self.stage = "the output"
        output = os.open(f"{self.folder}/output", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        for source, target in ((nothing, 0), (output, 1), (output, 2)):
            os.dup2(source, target)
        self.stage = f"the folder {task['working_dir']}"
        os.chdir(task["working_dir"] or self.folder)
        for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        self.stage = str(task["command"][0])
        os.execvpe(task["command"][0], task["command"], task["environment"])  # noqa: S606  # no shell is intended

    def _look(self, info: "signal.struct_siginfo | None", is_late: bool) -> None:
        """Asks for the end if it is due, and keeps the output short."""
        if os.path.exists(f"{self.folder}/cancel"):
            self._ask("cancel")
        elif info is not None and info.si_signo != signal.SIGCHLD:
            self._ask("signal")
        elif is_late:
            self._ask("time")
        if self.kill_at is not None and time.monotonic() >= self.kill_at:
            self._signal(signal.SIGKILL)
        self._shorten()

    def _ask(self, why: str) -> None:
        if not self.asked:
            self.asked = why
            self.kill_at = time.monotonic() + self.task["grace"]
            self._signal(signal.SIGTERM)

    def _signal(self, number: int) -> None:
        _tried(os.killpg, self.pid, number)
        if not os.path.exists(f"{self.folder}/command"):
            _tried(os.kill, self.pid, number)  # it may not lead its group yet

    def _shorten(self) -> None:
        """Makes a hole of the beginning of an output that is too long. Positions stay, and nothing else is lost."""
        try:
            size = os.stat(f"{self.folder}/output").st_size
            if size - self.cut <= self.task["max_log_size"]:
                return
            cut = (size - self.task["max_log_size"] // 2) // BLOCK * BLOCK
            with open(f"{self.folder}/output", "r+b") as file:
                libc = ctypes.CDLL(None, use_errno=True)
                sizes = ctypes.c_long(0), ctypes.c_long(cut)
                if libc.fallocate(file.fileno(), _PUNCH_HOLE | _KEEP_SIZE, *sizes) != 0:
                    os.ftruncate(file.fileno(), 0)
                    cut = 0
            written(self.folder, "cut", {"bytes": cut})
            self.cut = cut
        except OSError:
            return  # the disk is full or gone: the next look tries again

    def _end_rest(self) -> None:
        """Ends the processes that the command has left behind in other groups and sessions."""
        if self.task["cgroup"]:
            _tried(_write, f"{self.task['cgroup']}/cgroup.kill", "1")
        for _ in range(1000):
            for pid in children():
                _tried(os.kill, pid, signal.SIGKILL)
            try:
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            except ChildProcessError:
                break
            time.sleep(0.005)

    def _result(self, status: int, problem: str) -> "Json":
        reason = f"the command cannot be executed: {problem}" if problem else _REASONS.get(self.asked, "")
        if self.task["cgroup"] and _is_out_of_memory(self.task["cgroup"]):
            reason = "OOMKilled: the task used more memory than its limit"
        code = os.waitstatus_to_exitcode(status)
        return {"asked": self.asked, "reason": reason, **({"signal": -code} if code < 0 else {"exit_code": code})}


_REASONS = {
    "time": "the time limit is over",
    "signal": "the process that watches the task was asked to end, as at a shutdown of the machine",
}


def _draft(folder: str, name: str, value: "Json", sync: bool) -> str:
    draft = f"{folder}/.{name}.{os.getpid()}"
    try:
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "w") as file:
            json.dump(value, file)
            if sync:
                file.flush()
                os.fsync(file.fileno())
    except OSError:
        _tried(os.unlink, draft)
        raise
    return draft


def _sync_folder(folder: str) -> None:
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _tried(work: "Callable[..., object]", *arguments: object) -> None:
    """Calls a function of the system. Its failure changes nothing: what it is called for is gone."""
    try:
        work(*arguments)
    except OSError:
        return


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


def _is_out_of_memory(cgroup: str) -> bool:
    try:
        with open(f"{cgroup}/memory.events") as file:
            return any(line.split()[0] == "oom_kill" and int(line.split()[1]) for line in file)
    except (OSError, ValueError, IndexError):
        return False


def main(folder: str) -> None:
    """Keeps one task. A line on standard output says that there is a claim, by this keeper or another one."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _AWAITED)
    os.chdir("/")
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2:
            _tried(os.close, int(name))  # one is the descriptor of the list itself
    libc = ctypes.CDLL(None)
    libc.prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    libc.prctl(_CAP_AMBIENT, _AMBIENT_CLEAR_ALL, 0, 0, 0)
    with open("/proc/sys/kernel/random/boot_id") as file:
        claim = {"pid": os.getpid(), "start": stat(os.getpid())[1], "boot": file.read().strip()}
    is_mine = claimed(folder, claim)
    answer = b"claimed\n" if is_mine or os.path.exists(f"{folder}/claim") else b"no folder\n"
    _tried(os.write, 1, answer)  # the collector may have been killed meanwhile
    os.dup2(os.open(os.devnull, os.O_RDWR), 1)
    if is_mine:
        with open(f"{folder}/task.json", "rb") as file:
            task = json.load(file)
        task["environment"]["ZERNEL_TASK_KEEPER"] = ":".join(map(str, claim.values()))
        until_written(folder, "result", KeptCommand(folder, task).run(), sync=True)


if __name__ == "__main__":
    main(sys.argv[1])
