"""The one writer of the states: it starts queued tasks, asks the engine for states, and hands over cancellations."""

import asyncio
import contextlib
import sqlite3
from collections.abc import Awaitable, Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, TypeVar

from opentelemetry.metrics import Meter

from otel_zernel.component import Context
from otel_zernel.errors import NoAnswer
from otel_zernel.repeated import RepeatedByKey, more
from otel_zernel.runtime.threads import run_in_thread
from otel_zernel_extensions.tasks.config import TasksConfig
from otel_zernel_extensions.tasks.declared import DURATION, ENDED_TASKS, TASKS, WAIT
from otel_zernel_extensions.tasks.engines.engine import Engine, TaskRejected, TaskSpec
from otel_zernel_extensions.tasks.states import machine
from otel_zernel_extensions.tasks.states.store import TaskStore
from otel_zernel_extensions.tasks.states.task import Status, StoredTask

_BOUNDS = [1, 5, 10, 30, 60, 300, 600, 1800, 3600, 7200, 14400, 28800, 86400, 172800, 604800]
"""Seconds: from tests to trainings of a week."""


class TaskMetrics:
    """Counts the tasks by state, and measures how long they wait and run."""

    def __init__(self, meter: Meter) -> None:
        self._tasks = meter.create_up_down_counter(TASKS.name, TASKS.unit, TASKS.description)
        self._ended = meter.create_counter(*ENDED_TASKS.counter)
        self._duration, self._wait = (
            meter.create_histogram(
                histogram.name, histogram.unit, histogram.description, explicit_bucket_boundaries_advisory=_BOUNDS
            )
            for histogram in (DURATION, WAIT)
        )

    def begin(self, counts: Mapping[Status, int]) -> None:
        """Counts the tasks that are stored already."""
        for status, count in counts.items():
            self._tasks.add(count, {"status": status})

    def finish(self, counts: Mapping[Status, int]) -> None:
        """Takes the stored tasks out of the count: a next instance counts them again."""
        self.begin({status: -count for status, count in counts.items()})

    def added(self, task: StoredTask) -> None:
        """A new task."""
        self._tasks.add(1, {"status": task.status})

    def deleted(self, task: StoredTask) -> None:
        """A task whose record is deleted."""
        self._tasks.add(-1, {"status": task.status})

    def changed(self, before: StoredTask, task: StoredTask) -> None:
        """A task in its next state."""
        if task.status != before.status:
            self._tasks.add(-1, {"status": before.status})
            self._tasks.add(1, {"status": task.status})
        if before.started is None and task.started is not None:
            self._wait.record(max(0.0, task.started - task.created))
        if task.is_final and not before.is_final:
            self._ended.add(1, {"status": task.status})
            if task.started is not None and task.ended is not None:
                self._duration.record(max(0.0, task.ended - task.started), {"status": task.status})


T = TypeVar("T")
_DELETED_AT_ONCE: Final = 20
"""Expired tasks that one step deletes: deleting the output of a task takes about a millisecond."""
_MOST_LEFT_OUT: Final = 200
"""Expired tasks whose deletion has failed, and that do not keep others from being deleted."""
_DELETED_AGAIN: Final = 60.0
"""Seconds until the next attempt to delete such a task."""
_RELEASED_AGAIN: Final = 100
"""The newest failed tasks that are released after a restart, which may have come before their release."""


class Supervisor:
    """Moves the tasks of a store through their states. Every change is stored before the engine is asked.

    `step` does the work that is due; `run` repeats it. The engine is asked about one task by one call at a time.
    """

    def __init__(self, config: TasksConfig, context: Context, store: TaskStore, engine: Engine) -> None:
        self._config = config
        self._context = context
        self._store = store
        self._engine = engine
        self._metrics = TaskMetrics(context.meter)
        self._thread = ThreadPoolExecutor(1, "tasks")
        """All access to the store, so that each change is one after the other."""
        self._asking: dict[str, asyncio.Task[None]] = {}
        """The calls to the engine that run, by the id of their task."""
        self._unreleased: dict[str, StoredTask] = {}
        """Ended tasks for which the engine may still hold something."""
        self._left_out: dict[str, float] = {}
        """When the deletion of expired tasks is tried again, by id."""
        self._repeated = RepeatedByKey(context.clock.monotonic)
        self._due = asyncio.Event()
        self._waiting: list[asyncio.Future[None]] = []
        """Have a result after the next step."""
        self._problem: str | None = None
        self._is_open = False

    async def open(self) -> None:
        """Opens the store. Raises as `TaskStore.open`."""
        self._thread = ThreadPoolExecutor(1, "tasks")
        self._is_open = True
        try:
            await self._stored(self._store.open)
        except BaseException:
            self._is_open = False
            raise
        self._metrics.begin(await self._stored(self._store.counts))
        failed, _ = await self._stored(lambda: self._store.page(["failed"], None, _RELEASED_AGAIN))
        self._unreleased = {task.spec.id: task for task in failed if task.handle}

    async def close(self) -> None:
        """Closes the store. Safe without `open`."""
        if self._is_open:
            with contextlib.suppress(sqlite3.Error):  # the disk may be gone
                self._left(await self._stored(self._store.counts))
            await self._stored(self._store.close)
            self._is_open = False
            self._thread.shutdown(wait=False)

    def _left(self, counts: Mapping[Status, int]) -> None:
        self._metrics.finish(counts)
        if active := counts["starting"] + counts["running"]:
            self._context.logger.info("Tasks that run on without the collector: %d. Its next start finds them", active)

    async def add(self, spec: TaskSpec) -> tuple[StoredTask, bool]:
        """Stores a task. Returns it and whether it is new. Raises `TaskRejected`, `TaskConflict`, `QueueFull`."""
        self._engine.check(spec)
        task = StoredTask(spec, created=self._now())
        stored, is_new = await self._stored(lambda: self._store.add(task, self._config.max_queued))
        if is_new:
            self._metrics.added(stored)
            self._due.set()
        return stored, is_new

    async def cancel(self, id_: str) -> StoredTask | None:
        """Asks for the end of a task. Returns its state, or None if there is no such task."""
        task = await self._apply(id_, machine.Cancel())
        self._due.set()
        return task

    @property
    def is_asking(self) -> bool:
        """Whether a call to the engine about a task runs."""
        return bool(self._asking)

    async def looked(self) -> None:
        """Returns when a step that begins after this call is done."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        self._due.set()
        await waiter

    async def read(self, read: Callable[[TaskStore], T]) -> T:
        """Reads from the store, in its thread."""
        return await self._stored(lambda: read(self._store))

    async def run(self) -> None:
        """Repeats `step` until it is cancelled. Then no call to the engine runs any more."""
        try:
            while True:
                self._due.clear()
                waiting, self._waiting = self._waiting, []
                await self._tried_step()
                for waiter in waiting:
                    if not waiter.done():
                        waiter.set_result(None)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._config.poll_interval):
                        await self._due.wait()
        finally:
            for call in (calls := [*self._asking.values()]):
                call.cancel()
            await asyncio.gather(*calls, return_exceptions=True)

    async def _tried_step(self) -> None:
        try:
            await self.step()
            self._report(None)
        except NoAnswer as error:
            self._report(f"The engine {self._config.engine} does not answer: {error}")
        except sqlite3.Error as error:
            self._report(f"The tasks in {self._config.directory} cannot be stored or read: {error}")
        except Exception as error:
            if due := self._repeated.add(repr(error)):
                engine = self._config.engine
                self._context.logger.exception("The engine %s failed; trying again%s", engine, more(due))

    async def step(self) -> None:
        """Asks for the states of the active tasks, and does the due work for each. Raises `NoAnswer`."""
        tasks = await self._stored(lambda: self._store.active(self._config.max_running))
        active = [task for task in tasks if task.status != "queued"]
        self._start_queued([task for task in tasks if task.status == "queued"], active)
        for task in active:
            if task.handle is None:
                self._ask(task, self._submit)
        await self._look_at([task for task in active if task.handle is not None])
        for task in [*self._unreleased.values()]:
            self._ask(task, self._release)
        await self._forget_expired()

    def _start_queued(self, queued: Iterable[StoredTask], active: Iterable[StoredTask]) -> None:
        """Starts the oldest queued tasks, in order: one without room keeps the later ones waiting."""
        running = {task.spec.id: task.spec for task in active}
        for task in queued:
            has_place = len(running) < self._config.max_running
            if not has_place or not self._engine.has_room(task.spec, [*running.values()]):
                return
            running[task.spec.id] = task.spec
            self._ask(task, self._start)

    async def _start(self, task: StoredTask) -> None:
        started = await self._apply(task.spec.id, machine.Start())
        if started and started.status == "starting":
            await self._submit(started)

    async def _submit(self, task: StoredTask) -> None:
        """Brings a starting task without a handle on its way, or to its end if it is cancelled."""
        id_ = task.spec.id
        current = await self._stored(lambda: self._store.get(id_))
        if current is None or current.is_final or current.handle is not None:
            return
        if not current.cancel_requested:
            try:
                await self._apply(id_, machine.Submitted(await self._engine.submit(current.spec)))
            except TaskRejected as refused:
                await self._apply(id_, machine.Refusal(str(refused)))
        elif handle := (await self._engine.recover([id_])).get(id_):
            await self._apply(id_, machine.Submitted(handle))
        else:
            await self._apply(id_, machine.NotStarted())
        self._due.set()

    async def _look_at(self, tasks: list[StoredTask]) -> None:
        """Stores the states of tasks with handles, and hands cancellations to the engine."""
        if not tasks:
            return
        states = await self._engine.states([task.handle for task in tasks if task.handle])
        for task in tasks:
            observed = states.get(task.handle or "")
            current = await self._apply_if_changed(task, machine.Report(observed) if observed else machine.Gone())
            if current and current.is_final:
                self._unreleased[current.spec.id] = current
            elif current and current.cancel_requested:
                self._ask(current, self._hand_over_cancel)

    async def _hand_over_cancel(self, task: StoredTask) -> None:
        if task.handle is not None:
            await self._engine.cancel(task.handle)

    async def _release(self, task: StoredTask) -> None:
        if task.handle is not None:
            await self._engine.release(task.handle)
        self._unreleased.pop(task.spec.id, None)

    async def _forget_expired(self) -> None:
        """Deletes old ended tasks. One that cannot be deleted now does not keep the others."""
        oldest, most_kept = self._now() - self._config.retention, self._config.max_finished
        size = min(_DELETED_AT_ONCE + len(self._left_out), _MOST_LEFT_OUT)
        expired = await self._stored(lambda: self._store.expired(oldest, most_kept, size))
        now = self._context.clock.monotonic()
        due = [task for task in expired if self._left_out.get(task.spec.id, now) <= now]
        for task in due[:_DELETED_AT_ONCE]:
            self._ask(task, self._forget)

    async def _forget(self, task: StoredTask) -> None:
        """Deletes a task: first what the engine has of it."""
        id_ = task.spec.id
        self._left_out[id_] = self._context.clock.monotonic() + _DELETED_AGAIN
        if task.handle is not None:
            await self._engine.forget(task.handle)
        if await self._stored(partial(self._store.delete, id_)):
            self._metrics.deleted(task)
        del self._left_out[id_]

    def _ask(self, task: StoredTask, work: Callable[[StoredTask], Awaitable[None]]) -> None:
        """Runs a call to the engine beside the others, unless one runs for this task."""
        if task.spec.id not in self._asking:
            asking = asyncio.create_task(self._asked(task, work), name=f"task {task.spec.id}")
            self._asking[task.spec.id] = asking

    async def _asked(self, task: StoredTask, work: Callable[[StoredTask], Awaitable[None]]) -> None:
        try:
            await work(task)
        except (NoAnswer, sqlite3.Error) as error:
            if due := self._repeated.add(str(error)):
                self._context.logger.warning("The task %s waits: %s; trying again%s", task.spec.id, error, more(due))
        except Exception as error:
            if due := self._repeated.add(repr(error)):
                self._context.logger.exception(
                    "The task %s waits: the engine failed; trying again%s", task.spec.id, more(due)
                )
        finally:
            del self._asking[task.spec.id]

    async def _apply(self, id_: str, event: machine.Event) -> StoredTask | None:
        changed = await self._stored(lambda: self._store.apply(id_, event, self._now()))
        if changed is None:
            return None
        before, task = changed
        if task is not before:
            self._metrics.changed(before, task)
        return task

    async def _apply_if_changed(self, task: StoredTask, event: machine.Event) -> StoredTask | None:
        """As `_apply`, without a transaction for a report that is no news."""
        return task if machine.after(task, event, self._now()) is task else await self._apply(task.spec.id, event)

    async def _stored(self, work: Callable[[], T]) -> T:
        if not self._is_open:
            raise sqlite3.ProgrammingError("the extension has stopped")
        return await run_in_thread(work, self._thread)

    def _now(self) -> float:
        return self._context.clock.time_ns() / 1e9

    def _report(self, problem: str | None) -> None:
        """Shows a problem in the health, and logs each new one. Two that alternate do not flood the log."""
        if problem and problem != self._problem and (due := self._repeated.add(problem)):
            self._context.logger.warning("%s%s", problem, more(due))
        if problem != self._problem:
            self._context.report(problem)
        self._problem = problem
