"""Tasks under any order of requests, failures of the engine and crashes of the collector, against a model."""

import asyncio
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from otel_zernel_extensions.tasks.engines.engine import Observed, ObservedStatus, TaskSpec
from otel_zernel_extensions.tasks.states.task import StoredTask
from tests.extensions.tasks.world import Collector, MemoryEngine

IDS = st.sampled_from([f"t{number}" for number in range(6)])
STEPS = st.integers(0, 12)
NOW = 1_700_000_000.0
"""The time of `FakeClock`."""


class TaskMachine(RuleBasedStateMachine):
    """Requests of clients, the life of the tasks in the engine, and crashes, in any order."""

    accepted = Bundle("accepted")

    def __init__(self) -> None:
        super().__init__()
        self._loop = asyncio.new_event_loop()
        self._folder = tempfile.TemporaryDirectory()
        self._engine = MemoryEngine()
        self._collector = Collector(Path(self._folder.name), self._engine)
        self._loop.run_until_complete(self._collector.start())
        self._finals: dict[str, StoredTask] = {}
        self._known: set[str] = set()
        """Tasks whose request was answered."""
        self._never_started: set[str] = set()
        """Tasks that a client has cancelled before they ran, also while the engine was being asked."""
        self._gone: set[str] = set()

    @rule(target=accepted, id_=IDS)
    def post(self, id_: str) -> str:
        answer = self._run(self._collector.supervisor.add(TaskSpec(id_, ("true",))))
        if answer:
            self._known.add(id_)
        return id_

    @rule(id_=accepted)
    def cancel(self, id_: str) -> None:
        runs = self._engine.runs[id_]
        task = self._run(self._collector.supervisor.cancel(id_))
        if task and not runs:
            self._never_started.add(id_)

    @rule()
    def step(self) -> None:
        self._run(self._collector.supervisor.step())

    @rule(steps=STEPS)
    def crash_soon(self, steps: int) -> None:
        self._engine.fuse.steps = steps

    @rule()
    def crash_now(self) -> None:
        self._loop.run_until_complete(self._collector.kill())
        self._loop.run_until_complete(self._collector.start())

    @rule(count=st.integers(1, 3))
    def the_engine_fails(self, count: int) -> None:
        self._engine.failures = count

    @rule(id_=accepted)
    def the_task_runs(self, id_: str) -> None:
        if self._status_in_engine(id_) == "starting":
            self._set(id_, Observed("running", started=NOW))

    @rule(id_=accepted, code=st.integers(0, 3))
    def the_task_ends(self, id_: str, code: int) -> None:
        if self._status_in_engine(id_) == "running":
            self._end(id_, code)

    @rule(id_=accepted)
    def the_engine_forgets_a_running_task(self, id_: str) -> None:
        if self._status_in_engine(id_) in ("starting", "running") and self._has_handle(id_):
            del self._engine.world[f"handle of {id_}"]
            self._gone.add(id_)

    @rule(id_=IDS)
    def the_engine_refuses_a_task(self, id_: str) -> None:
        if not self._engine.runs[id_]:
            self._engine.refused.add(id_)

    @invariant()
    def states_are_true(self) -> None:
        for id_ in self._known:
            task = self._loop.run_until_complete(self._collector.get(id_))
            assert task, "an accepted task is lost"
            self._check(task)

    def teardown(self) -> None:
        """Everything ends, and the ends are stored."""
        self._engine.failures = 0
        self._engine.fuse.steps = None
        for _ in range(12):
            self.step()
            for id_ in [one.removeprefix("handle of ") for one in self._engine.world]:
                if self._engine.world[f"handle of {id_}"].status in ("starting", "running"):
                    self._end(id_, 7)
        self.step()
        for id_ in self._known:
            task = self._loop.run_until_complete(self._collector.get(id_))
            assert task
            assert task.is_final
            self._check(task)
        self._loop.run_until_complete(self._collector.kill())
        self._loop.close()
        self._folder.cleanup()

    def _check(self, task: StoredTask) -> None:
        id_ = task.spec.id
        observed = self._engine.world.get(f"handle of {id_}")
        assert self._engine.runs[id_] <= 1, "a task has run twice"
        if task.is_final:
            assert self._finals.setdefault(id_, task) == task, "a final state has changed"
        if task.status in ("succeeded", "failed") and id_ not in self._engine.refused:
            assert observed
            assert (task.status, task.exit_code) == (observed.status, observed.exit_code)
        if task.status == "lost":
            assert id_ in self._gone
        if task.status == "cancelled" and task.handle is None:
            assert not self._engine.runs[id_], "a cancelled queued task has run"
        if id_ in self._never_started:
            assert not self._engine.runs[id_], "a task has run after its cancellation"
        if observed and observed.status in ("succeeded", "failed") and task.is_final:
            assert task.exit_code == observed.exit_code, "an exit code is lost"

    def _status_in_engine(self, id_: str) -> str:
        observed = self._engine.world.get(f"handle of {id_}")
        return observed.status if observed else ""

    def _has_handle(self, id_: str) -> bool:
        task = self._loop.run_until_complete(self._collector.get(id_))
        return bool(task and task.handle)

    def _set(self, id_: str, observed: Observed) -> None:
        self._engine.world[f"handle of {id_}"] = observed

    def _end(self, id_: str, code: int) -> None:
        is_cancelled = f"handle of {id_}" in self._engine.cancelled
        status: ObservedStatus = "cancelled" if is_cancelled else "failed" if code else "succeeded"
        self._set(id_, Observed(status, exit_code=code, started=NOW, ended=NOW + 1))

    def _run(self, work: Any) -> Any:
        return self._loop.run_until_complete(self._collector.act(work))


TestTaskMachine = TaskMachine.TestCase
TestTaskMachine.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)


@pytest.mark.parametrize("is_flaky", [False, True])
@pytest.mark.parametrize("cancelled_after", [None, "post", "start", "run"])
@pytest.mark.parametrize("steps", range(12))
def test_a_crash_at_each_point_of_a_start_loses_nothing(
    steps: int, cancelled_after: str | None, is_flaky: bool
) -> None:
    machine = TaskMachine()
    machine.post("t0")
    machine.crash_soon(steps)
    if is_flaky:
        machine.the_engine_fails(1)
    if cancelled_after == "post":
        machine.cancel("t0")
    machine.step()
    if cancelled_after == "start":
        machine.cancel("t0")
    machine.step()
    machine.the_task_runs("t0")
    machine.step()
    if cancelled_after == "run":
        machine.cancel("t0")
    machine.step()
    machine.states_are_true()
    machine.teardown()
