"""The storage of tasks: an SQLite file. Every method blocks; all are called in one thread."""

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from otel_zernel.errors import ZernelError
from otel_zernel_extensions.tasks.engines.engine import TaskLimits, TaskSpec
from otel_zernel_extensions.tasks.states.machine import Event, after
from otel_zernel_extensions.tasks.states.task import FINAL, STATUSES, Status, StoredTask
from otel_zernel_libraries.store.sqlite.connecting import transaction

_VERSION: Final = 1
_LONGEST_PAGE: Final = 1 << 20
"""Bytes of the specs in a list: more would take over 10 ms to write as JSON."""
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS tasks (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    status TEXT NOT NULL,
    ended REAL, -- when the end was stored
    version INTEGER NOT NULL,
    spec TEXT NOT NULL,
    state TEXT NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS by_status ON tasks (status, number);
CREATE INDEX IF NOT EXISTS by_end ON tasks (ended) WHERE ended IS NOT NULL;
"""


class TaskConflict(ZernelError):
    """Another task has the same id. The message is one sentence for the client."""


class QueueFull(ZernelError):
    """So many tasks are queued that no more are accepted."""


class UnknownSchema(ZernelError):
    """The file is of another release."""


class TaskStore:
    """Tasks in a file. What a method has returned is on the disk.

    The open file is locked: a second process, or a second store, gets `sqlite3.OperationalError`.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection: sqlite3.Connection | None = None

    def open(self) -> None:
        """Raises `sqlite3.Error` or `OSError` if the file cannot be used, or `UnknownSchema`."""
        self._path.touch(0o600)  # SQLite would let everybody read the environments of tasks, which may hold secrets
        connection = sqlite3.connect(self._path, timeout=1.0, isolation_level=None, check_same_thread=False)
        try:
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            if version not in (0, _VERSION):
                raise UnknownSchema(f"{self._path} has version {version} of the schema")
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("COMMIT")
            connection.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} PRAGMA user_version = {_VERSION}; COMMIT;")
        except BaseException:
            connection.close()
            raise
        self._connection = connection

    def close(self) -> None:
        """Safe to call twice."""
        if self._connection:
            self._connection.close()
            self._connection = None

    def add(self, task: StoredTask, most_queued: int) -> tuple[StoredTask, bool]:
        """Stores a new task. Returns it and True, or the stored one with the same id and False.

        Raises `TaskConflict` if that one has another spec, and `QueueFull`.
        """
        with self._writing() as connection:
            if known := self._one(connection, task.spec.id):
                if known.spec != task.spec:
                    raise TaskConflict(
                        f"another request has made the task {known.spec.id}; use another id or Idempotency-Key"
                    )
                return known, False
            (queued,) = connection.execute("SELECT count(*) FROM tasks WHERE status = 'queued'").fetchone()
            if queued >= most_queued:
                raise QueueFull(f"{queued} tasks are queued already; try again later")
            row = (task.spec.id, *_row(task), _json(asdict(task.spec)), _state_json(task))
            connection.execute(
                "INSERT INTO tasks (id, status, ended, version, spec, state) VALUES (?, ?, ?, ?, ?, ?)", row
            )
        return task, True

    def apply(self, id_: str, event: Event, now: float) -> tuple[StoredTask, StoredTask] | None:
        """Stores the task after the event, and returns it before and after it. None if there is no such task."""
        with self._writing() as connection:
            before = self._one(connection, id_)
            if before is None:
                return None
            task = after(before, event, now)
            if task is not before:
                changed = connection.execute(
                    "UPDATE tasks SET status = ?, ended = ?, version = ?, state = ? WHERE id = ? AND version = ?",
                    (*_row(task), _state_json(task), id_, before.version),
                )
                if changed.rowcount != 1:
                    raise sqlite3.IntegrityError(f"the task {id_} was changed by another writer")
        return before, task

    def get(self, id_: str) -> StoredTask | None:
        """The task with this id."""
        return self._one(self._open_connection, id_)

    def active(self, most_queued: int) -> list[StoredTask]:
        """The tasks that are starting or running, and the oldest of the queued ones, each oldest first."""
        rows = self._open_connection.execute(
            f"SELECT {_READ} FROM tasks WHERE status IN ('starting', 'running') ORDER BY number"  # noqa: S608
        ).fetchall()
        rows += self._open_connection.execute(
            f"SELECT {_READ} FROM tasks WHERE status = 'queued' ORDER BY number LIMIT ?",  # noqa: S608
            (most_queued,),
        ).fetchall()
        return [_task(*row) for row in rows]

    def page(self, statuses: Iterable[Status], before: int | None, size: int) -> tuple[list[StoredTask], int | None]:
        """The newest tasks with these states, and the number to go on with; None if there are no more.

        A page is shorter than `size` if its tasks are long: each may have 128 KiB of arguments and variables.
        """
        wanted = [*statuses] or [*STATUSES]
        marks = ",".join("?" * len(wanted))
        rows = self._open_connection.execute(
            f"SELECT number, {_READ} FROM tasks WHERE status IN ({marks}) AND number < ? "  # noqa: S608
            "ORDER BY number DESC LIMIT ?",
            (*wanted, before if before is not None else 1 << 62, size + 1),
        )
        tasks: list[StoredTask] = []
        last, length = None, 0
        for number, version, spec, state in rows:
            length += len(spec)
            if len(tasks) == size or (tasks and length > _LONGEST_PAGE):
                return tasks, last
            tasks.append(_task(version, spec, state))
            last = number
        return tasks, None

    def counts(self) -> Mapping[Status, int]:
        """The number of stored tasks by state."""
        fetchall = self._open_connection.execute("SELECT status, count(*) FROM tasks GROUP BY status").fetchall()
        return dict.fromkeys(STATUSES, 0) | dict(fetchall)

    def expired(self, ended_before: float, most_kept: int, size: int) -> list[StoredTask]:
        """At most `size` ended tasks: those whose ends were stored before that time, or that are beyond `most_kept`."""
        rows = self._open_connection.execute(
            f"SELECT {_READ} FROM tasks WHERE ended IS NOT NULL AND (ended < ? OR number IN (SELECT number FROM tasks "  # noqa: S608
            "WHERE ended IS NOT NULL ORDER BY ended DESC, number DESC LIMIT -1 OFFSET ?)) ORDER BY ended LIMIT ?",
            (ended_before, most_kept, size),
        ).fetchall()
        return [_task(*row) for row in rows]

    def delete(self, id_: str) -> bool:
        """Deletes an ended task. False if there is none with this id."""
        finals = ",".join(f"'{status}'" for status in sorted(FINAL))
        with self._writing() as connection:
            done = connection.execute(f"DELETE FROM tasks WHERE id = ? AND status IN ({finals})", (id_,))  # noqa: S608
        return bool(done.rowcount == 1)

    @property
    def _open_connection(self) -> sqlite3.Connection:
        if self._connection is None:
            raise sqlite3.ProgrammingError("the store is closed")
        return self._connection

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction, which is on the disk at the exit."""
        with transaction(self._open_connection):
            yield self._open_connection

    def _one(self, connection: sqlite3.Connection, id_: str) -> StoredTask | None:
        row = connection.execute(f"SELECT {_READ} FROM tasks WHERE id = ?", (id_,)).fetchone()  # noqa: S608
        return _task(*row) if row else None


_READ: Final = "version, spec, state"


def _row(task: StoredTask) -> tuple[str, float | None, int]:
    return task.status, task.recorded, task.version


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _state_json(task: StoredTask) -> str:
    state = asdict(task)
    for name in ("spec", "version"):
        del state[name]
    return _json(state)


def _task(version: int, spec: str, state: str) -> StoredTask:
    parts = json.loads(spec)
    limits = TaskLimits(**parts.pop("limits"))
    described = TaskSpec(**{**parts, "command": tuple(parts["command"]), "limits": limits})
    return StoredTask(spec=described, version=version, **json.loads(state))
