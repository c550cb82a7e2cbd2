"""The folder of a local task: what the keeper writes, and the state that follows from it. Every function blocks."""

import json
import os
import shutil
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from otel_zernel_extensions.tasks.engines.engine import Observed, ObservedStatus
from otel_zernel_extensions.tasks.engines.local.processes import LocalProcess, boot_id, json_of

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
        if result := json_of(self.path / "result"):
            return _ended(result)
        claim = json_of(self.path / "claim")
        if claim is None:
            return None
        keeper = LocalProcess(claim["pid"], claim["start"])
        started = json_of(self.path / "command")
        command = LocalProcess(started["pid"], started["start"]) if started else None
        is_this_boot = claim["boot"] == boot_id()
        if is_this_boot and keeper.is_alive():
            if not started:
                return Observed("starting")
            return Observed("running", started=started["time"], pids=(started["pid"],))
        if result := json_of(self.path / "result"):  # the keeper has ended between the two looks
            return _ended(result)
        if is_this_boot and command:
            command.kill_group()
        return None

    def has_ended(self) -> bool:
        """Whether nothing writes output any more."""
        if (self.path / "result").exists():
            return True
        claim = json_of(self.path / "claim")
        return not claim or claim["boot"] != boot_id() or not LocalProcess(claim["pid"], claim["start"]).is_alive()

    def cancel(self) -> None:
        """Asks the keeper for the end of the task."""
        claim = json_of(self.path / "claim")
        if claim is None or (self.path / "result").exists():
            return
        with suppress(FileNotFoundError):
            (self.path / "cancel").touch(0o600)
        if claim["boot"] == boot_id():
            LocalProcess(claim["pid"], claim["start"]).signal(15)

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
        return int((json_of(self.path / "cut") or {}).get("bytes", 0))


def delete_remains(folder: Path) -> None:
    """Deletes folders whose deletion was interrupted."""
    for grave in folder.glob(f"{_VOID}*"):
        shutil.rmtree(grave, ignore_errors=True)


def _ended(result: dict[str, Any]) -> Observed:
    asked, code = result.get("asked", ""), result.get("exit_code")
    status: ObservedStatus = "failed"
    if asked == "cancel":
        status = "cancelled"
    elif code == 0 and not asked:
        status = "succeeded"
    return Observed(
        status,
        exit_code=code,
        signal=result.get("signal"),
        reason=result.get("reason", ""),
        started=result.get("started"),
        ended=result.get("ended"),
    )
