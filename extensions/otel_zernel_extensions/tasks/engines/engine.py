"""The contract of engines. An engine runs tasks somewhere; the extension keeps their states and asks the engine."""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, Self
from urllib.parse import quote

from otel_zernel.errors import ZernelError
from otel_zernel_libraries.job_environment import JOB_ID, TASK_ID

ObservedStatus = Literal["starting", "running", "succeeded", "failed", "cancelled"]
ENDED: Final = frozenset({"succeeded", "failed", "cancelled"})


class TaskRejected(ZernelError):
    """The engine will never run this task. The message is one sentence for the client, and names the cause."""


class LogsGone(ZernelError):
    """The engine has no output of this task: it has not started, it writes elsewhere, or the output is deleted.

    The message is one sentence for the client. If the output is elsewhere, it names the place.
    """


@dataclass(frozen=True, slots=True)
class TaskLimits:
    """The most that a task may use. None: no limit by the extension."""

    cpu: float | None = None
    """CPUs: 1.5 is one and a half."""
    memory: int | None = None
    """Bytes."""
    gpus: int = 0
    """GPUs for the task alone."""
    time: float | None = None
    """Seconds from the start of the command."""


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """A task as the client described it."""

    id: str
    """At most 52 characters: a-z, 0-9 and inner hyphens, so that it is part of a DNS label. Never used twice."""
    command: tuple[str, ...]
    """The program and its arguments. No shell interprets them."""
    name: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    """As the client gave it. `task_environment` adds the ids."""
    working_dir: str | None = None
    limits: TaskLimits = TaskLimits()


@dataclass(frozen=True, slots=True)
class Observed:
    """The state of a task as its engine reports it. Raises `ValueError` if a success has another exit code than 0."""

    status: ObservedStatus
    """`starting` while the task waits for a place or an image; `cancelled` if it ended because of `cancel`."""
    exit_code: int | None = None
    """Of an ended command, 0 to 255. None if a signal ended it, or if it never ran."""
    signal: int | None = None
    """The signal that ended the command."""
    reason: str = ""
    """One sentence for people, if there is more to say: `OOMKilled: the limit of memory is 2 GiB`."""
    started: float | None = None
    """When the command started: s since 1970, by the engine's clock."""
    ended: float | None = None

    def __post_init__(self) -> None:
        if self.status == "succeeded" and self.exit_code != 0:
            raise ValueError(f"a success has exit code 0, not {self.exit_code}")


class Engine(ABC):
    """Runs tasks. One extension uses it, from one event loop; calls for different tasks may overlap.

    A *handle* is the engine's own name of a task, at most 300 characters: a job name, a number. It is stored.
    Every method except `check` and `has_room` may raise `NoAnswer`. Nothing here may block the event loop.
    """

    async def __aenter__(self) -> Self:
        """Opens its resources. Raises `CannotStart` if it never will work; an engine that is away is no reason."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Closes its resources. Tasks run on."""
        return

    def check(self, task: TaskSpec) -> None:
        """Raises `TaskRejected` if it can never run this task: a limit that it cannot keep, too many GPUs.

        Called before the task is stored. Does no I/O.
        """
        return

    def has_room(self, task: TaskSpec, active: Collection[TaskSpec]) -> bool:
        """Whether the task may be submitted beside the active ones. Otherwise it stays queued. Does no I/O.

        An engine with its own queue returns True.
        """
        return True

    @abstractmethod
    async def submit(self, task: TaskSpec) -> str:
        """Starts the task, and returns its handle.

        Safe to repeat, also after a restart and after `NoAnswer`: a task with the same id runs once, and its
        handle is returned again. Raises `TaskRejected` if the engine refuses it for good; then nothing runs.
        """

    @abstractmethod
    async def cancel(self, handle: str) -> None:
        """Asks for the end of the task. Returns at once; `states` has the end. Safe to repeat.

        A handle that is unknown or has ended is no error, and a task that has ended keeps its result.
        """

    @abstractmethod
    async def states(self, handles: Collection[str]) -> Mapping[str, Observed]:
        """The state of each of these tasks. Called every `poll_interval`; one request should serve all.

        A handle that is absent from the answer is gone for good: its task becomes `lost`, or `cancelled` if that was
        asked. So an engine that is not sure raises `NoAnswer`. An end, with its exit code, stays in the answer
        until `forget`.
        """

    @abstractmethod
    def logs(self, handle: str, follow: bool, tail: int | None) -> AsyncIterator[bytes]:
        """The output of the task, or its last `tail` lines, in pieces of at most 64 KiB.

        With `follow`, it goes on until the task has ended and all output is read. Standard output and standard error
        are one stream. Raises `LogsGone` before the first piece. The iterator is closed early if the client leaves.
        """

    @abstractmethod
    async def recover(self, ids: Collection[str]) -> Mapping[str, str]:
        """The handles of those of these tasks that an earlier `submit` has started, by task id.

        Called after a restart, or after a `submit` whose outcome is unknown. A task that is absent has not started, and
        no former `submit` will start it.
        """

    async def release(self, handle: str) -> None:
        """Frees what an ended task still holds, except its end and its output. Called once its end is stored.

        Safe to repeat. An unknown handle is no error.
        """
        return

    @abstractmethod
    async def forget(self, handle: str) -> None:
        """Deletes what the engine keeps of an ended task: output, result, objects. Called when its record is deleted.

        Safe to repeat. An unknown handle is no error.
        """


def task_environment(task: TaskSpec) -> dict[str, str]:
    """The variables of the task with its ids, by which telemetry of its processes carries `zernel.job.id`.

    Variables of the client are kept, except `ZERNEL_TASK_ID`. A job of several tasks sets the same `ZERNEL_JOB_ID`.
    """
    job = task.env.get("ZERNEL_JOB_ID") or task.id
    given = task.env.get("OTEL_RESOURCE_ATTRIBUTES", "").rstrip(", ")
    ids = f"{JOB_ID}={quote(job)},{TASK_ID}={task.id}"
    return {
        "OTEL_SERVICE_NAME": task.name or job,
        "ZERNEL_JOB_ID": job,
        **task.env,
        "OTEL_RESOURCE_ATTRIBUTES": f"{given},{ids}" if given else ids,
        "ZERNEL_TASK_ID": task.id,
    }
