"""The state machine of tasks. docs/development/tasks.md has it as a table; a test compares the two."""

from dataclasses import dataclass, replace

from otel_zernel_extensions.tasks.engines.engine import ENDED, Observed
from otel_zernel_extensions.tasks.states.task import Status, StoredTask


@dataclass(frozen=True, slots=True)
class Start:
    """There is room for the task. Stored before the engine is asked."""


@dataclass(frozen=True, slots=True)
class Cancel:
    """A client asks for the end of the task."""


@dataclass(frozen=True, slots=True)
class Submitted:
    """The engine has taken the task."""

    handle: str


@dataclass(frozen=True, slots=True)
class Refusal:
    """The engine will never run the task, and has not started it."""

    reason: str


@dataclass(frozen=True, slots=True)
class NotStarted:
    """No former submit of the task has started it, or ever will."""


@dataclass(frozen=True, slots=True)
class Report:
    """The engine reports a state."""

    observed: Observed


@dataclass(frozen=True, slots=True)
class Gone:
    """The engine does not know the handle."""


Event = Start | Cancel | Submitted | Refusal | NotStarted | Report | Gone
_LOST = "the engine does not know the task any more, so its exit code is unknown"


def after(task: StoredTask, event: Event, now: float) -> StoredTask:
    """The task after the event, at `now` s since 1970. The same object if the event changes nothing."""
    if task.is_final:
        return task
    changed = _changed(task, event, now)
    if changed is task or changed == task:
        return task
    return replace(changed, version=task.version + 1, recorded=now if changed.is_final else None)


def _changed(task: StoredTask, event: Event, now: float) -> StoredTask:
    match event:
        case Start():
            return replace(task, status="starting") if task.status == "queued" else task
        case Cancel():
            if task.status == "queued":
                return replace(task, status="cancelled", cancel_requested=True, ended=now)
            return replace(task, cancel_requested=True)
    return task if task.status == "queued" else _submitted(task, event, now)


def _submitted(task: StoredTask, event: Event, now: float) -> StoredTask:
    """After an event of the engine. The task is starting or running."""
    match event:
        case Submitted(handle):
            return replace(task, handle=handle) if task.handle is None else task
        case Refusal(reason):
            status: Status = "cancelled" if task.cancel_requested else "failed"
            return replace(task, status=status, reason=reason, ended=now) if task.handle is None else task
        case NotStarted():
            ends = task.handle is None and task.cancel_requested
            return replace(task, status="cancelled", ended=now) if ends else task
        case Gone() if task.handle is not None:
            if task.cancel_requested:
                return replace(task, status="cancelled", ended=now)
            return replace(task, status="lost", reason=_LOST, ended=now)
        case Report(observed) if task.handle is not None:
            return _reported(task, observed, now)
    return task


def _reported(task: StoredTask, observed: Observed, now: float) -> StoredTask:
    if observed.status in ENDED:
        return replace(
            task,
            status=observed.status,
            exit_code=observed.exit_code,
            signal=observed.signal,
            reason=observed.reason,
            started=task.started or observed.started,
            ended=observed.ended or now,
        )
    if observed.status == "starting" and task.status == "running":
        return replace(task, reason=observed.reason)  # an engine that has lost sight of it
    started = task.started or observed.started or now if observed.status == "running" else task.started
    return replace(task, status=observed.status, reason=observed.reason, started=started)
