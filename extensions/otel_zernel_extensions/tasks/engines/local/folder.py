"""The folder of a local task: what the keeper writes, and the state that follows from it. Every function blocks.

Each file appears complete, by a link or a rename:

- `task.json`: what to run, written by the engine;
- `claim`: the keeper. It is made once: of several keepers of a task, one starts the command;
- `command`: the process of the command, written by that process before it becomes the command;
- `cancel`: the engine asks for the end, and sends SIGTERM to the keeper;
- `result`: the end of the task;
- `output`: standard output and standard error. If it grows too long, its beginning becomes a hole;
- `cut`: how many bytes at the beginning of the output are gone.

A process is its pid with its start time: a pid is used again.
"""

import json
import os
import shutil
import signal
import uuid
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from otel_zernel_extensions.tasks.engines.engine import Observed, ObservedStatus

_ROUNDS: Final = 20
"""Attempts to kill processes that start others meanwhile."""


@dataclass(frozen=True, slots=True)
class LocalProcess:
    """A process of this machine."""

    pid: int
    start: int
    """Clock ticks since the boot."""

    def is_alive(self) -> bool:
        """Whether it runs. A zombie does not."""
        try:
            text = Path(f"/proc/{self.pid}/stat").read_bytes()
        except OSError:
            return False
        fields = text.rpartition(b")")[2].split()
        return fields[0] not in (b"Z", b"X") and int(fields[19]) == self.start

    def signal(self, number: int) -> None:
        """Sends a signal to this process, and never to another one with its pid."""
        with suppress(OSError):
            descriptor = os.pidfd_open(self.pid)
            try:
                if self.is_alive():
                    signal.pidfd_send_signal(descriptor, number)
            finally:
                os.close(descriptor)

    def kill_group(self) -> None:
        """Kills the process and its group, which it leads."""
        if self.is_alive():
            with suppress(OSError):
                os.killpg(self.pid, signal.SIGKILL)


def kill_marked(variable: str) -> None:
    """Kills every process that was started with a variable of the environment (`NAME=value`)."""
    for _ in range(_ROUNDS):
        pids = [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if _has_variable(pid, variable)]  # noqa: PTH208
        if not pids:
            return
        for pid in pids:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)


def _has_variable(pid: int, variable: str) -> bool:
    """False for zombies, and for processes of other users."""
    try:
        return variable.encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False


def boot_id() -> str:
    """The id of this boot of the machine."""
    return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()


def process_in(path: Path) -> LocalProcess | None:
    """The process that a file names by `pid` and `start`; None if there is no such file, or if it is damaged."""
    fields = json_of(path) or {}
    pid, start = fields.get("pid"), fields.get("start")
    # 0 and negative pids stand for groups, and 1 for the machine
    is_process = isinstance(pid, int) and isinstance(start, int) and pid > 1
    return LocalProcess(pid, start) if is_process else None  # type: ignore[arg-type]  # checked above


def json_of(path: Path) -> dict[str, Any] | None:
    """The object in a file; None if there is no such file, or if a broken disk has changed it."""
    try:
        loads = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    return loads if isinstance(loads, dict) else None


_VOID: Final = ".void-"
"""The beginning of the names of folders that are being deleted."""


class TaskFolder:
    """The folder of one task. `keeper.py` describes its files."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def is_claimed(self) -> bool:
        """Whether a keeper has taken the task: it runs, has run, or is lost."""
        return (self.path / "claim").exists()

    @property
    def output(self) -> Path:
        return self.path / "output"

    def prepare(self, task: dict[str, Any]) -> None:
        """Makes the folder, and writes what the keeper runs. Raises `OSError`."""
        self.path.mkdir(0o700, exist_ok=True)
        draft = self.path / f".task.{uuid.uuid4().hex}"
        draft.touch(0o600)
        with draft.open("w", encoding="utf-8") as file:
            json.dump(task, file)
            file.flush()
            os.fsync(file.fileno())
        draft.rename(self.path / "task.json")

    def described(self) -> dict[str, Any]:
        """The content of `task.json`; empty if there is none."""
        return json_of(self.path / "task.json") or {}

    def observed(self) -> Observed | None:
        """The state of a claimed task. None if its keeper was killed: then its processes are killed, too."""
        if end := self._end():
            return end
        keeper, command = self._keeper(), process_in(self.path / "command")
        if keeper and keeper.is_alive():
            if not command:
                return Observed("starting")
            return Observed("running", started=self._started())
        if end := self._end():  # the keeper has ended between the two looks
            return end
        if keeper:
            if command:
                command.kill_group()
            kill_marked(f"ZERNEL_TASK_KEEPER={keeper.pid}:{keeper.start}:{boot_id()}")
        return None

    def has_ended(self) -> bool:
        """Whether nothing writes output any more."""
        if (self.path / "result").exists():
            return True
        keeper = self._keeper()
        return not keeper or not keeper.is_alive()

    def cancel(self) -> None:
        """Asks the keeper for the end of the task."""
        if not self.is_claimed or (self.path / "result").exists():
            return
        with suppress(FileNotFoundError):
            (self.path / "cancel").touch(0o600)
        if keeper := self._keeper():
            keeper.signal(signal.SIGTERM)

    def void(self) -> bool:
        """Makes sure that a task without a claim never starts, and deletes its folder. False if there is a claim."""
        draft = self.path / f".claim.{uuid.uuid4().hex}"
        try:
            draft.touch(0o600)
            (self.path / "claim").hardlink_to(draft)
        except FileNotFoundError:
            return True
        except FileExistsError:
            draft.unlink(missing_ok=True)
            return False
        self.delete()
        return True

    def delete(self) -> None:
        """Deletes the folder. From its first moment on, no keeper finds it."""
        grave = self.path.with_name(f"{_VOID}{uuid.uuid4().hex}")
        with suppress(FileNotFoundError):
            self.path.rename(grave)
            shutil.rmtree(grave, ignore_errors=True)

    def cut(self) -> int:
        """How many bytes at the beginning of the output are gone."""
        count = (json_of(self.path / "cut") or {}).get("bytes")
        return count if isinstance(count, int) else 0

    def _keeper(self) -> LocalProcess | None:
        """The keeper that has made the claim. None if there is none, or if it was one before the last boot."""
        claim = json_of(self.path / "claim") or {}
        return process_in(self.path / "claim") if claim.get("boot") == boot_id() else None

    def _started(self) -> float | None:
        time = (json_of(self.path / "command") or {}).get("time")
        return time if isinstance(time, float) else None

    def _end(self) -> Observed | None:
        result = json_of(self.path / "result")
        return _ended(result) if result else None


def delete_remains(folder: Path) -> None:
    """Deletes folders whose deletion was interrupted."""
    for grave in folder.glob(f"{_VOID}*"):
        shutil.rmtree(grave, ignore_errors=True)


def _ended(result: dict[str, Any]) -> Observed:
    asked, code = result.get("asked", ""), _number(result.get("exit_code"))
    status: ObservedStatus = "failed"
    if asked == "cancel":
        status = "cancelled"
    elif code == 0 and not asked:
        status = "succeeded"
    return Observed(
        status,
        exit_code=code,
        signal=_number(result.get("signal")),
        reason=str(result.get("reason", "")),
        started=result.get("started"),
        ended=result.get("ended"),
    )


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) else None
