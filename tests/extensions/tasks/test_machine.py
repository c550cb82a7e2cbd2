"""The state machine, compared with its table in docs/development/tasks.md."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_zernel_extensions.tasks.engines.engine import Observed, TaskSpec
from otel_zernel_extensions.tasks.states.machine import (
    Cancel,
    Event,
    Gone,
    NotStarted,
    Refusal,
    Report,
    Start,
    Submitted,
    after,
)
from otel_zernel_extensions.tasks.states.task import FINAL, STATUSES, StoredTask

PAPER = Path(__file__).parents[3] / "docs" / "development" / "tasks.md"
SPEC = TaskSpec("a", ("true",))
STATES: dict[str, StoredTask] = {
    "queued": StoredTask(SPEC, 1.0),
    "starting": StoredTask(SPEC, 1.0, status="starting"),
    "starting, cancel asked": StoredTask(SPEC, 1.0, status="starting", cancel_requested=True),
    "submitted": StoredTask(SPEC, 1.0, status="starting", handle="h"),
    "submitted, cancel asked": StoredTask(SPEC, 1.0, status="starting", cancel_requested=True, handle="h"),
    "running": StoredTask(SPEC, 1.0, status="running", handle="h"),
    "running, cancel asked": StoredTask(SPEC, 1.0, status="running", cancel_requested=True, handle="h"),
    **{name: StoredTask(SPEC, 1.0, status=name, handle="h") for name in STATUSES if name in FINAL},
}
EVENTS: dict[str, Event] = {
    "room": Start(),
    "cancel": Cancel(),
    "taken": Submitted("h"),
    "refused": Refusal("no"),
    "not started": NotStarted(),
    "waits": Report(Observed("starting")),
    "runs": Report(Observed("running")),
    "exit 0": Report(Observed("succeeded", exit_code=0)),
    "exit 1": Report(Observed("failed", exit_code=1)),
    "ended by cancel": Report(Observed("cancelled", exit_code=1)),
    "unknown": Gone(),
}


def cells() -> Iterator[tuple[str, str, str]]:
    """State, event and next state of every cell of the table."""
    rows = [line for line in PAPER.read_text("utf-8").splitlines() if line.startswith("| ")]
    first = next(number for number, row in enumerate(rows) if row.startswith("| state"))
    head, *body = (
        [cell.strip() for cell in re.split(r"\|", row)[1:-1]] for row in rows[first : first + 1 + len(STATES)]
    )
    for state, *nexts in body:
        for event, following in zip(head[1:], nexts, strict=True):
            yield state, event, following or state


def named(task: StoredTask) -> str:
    if task.is_final or task.status == "queued":
        return task.status
    place = "submitted" if task.status == "starting" and task.handle else task.status
    return f"{place}, cancel asked" if task.cancel_requested else place


@pytest.mark.parametrize(("state", "event", "following"), [*cells()])
def test_the_code_does_what_the_table_says(state: str, event: str, following: str) -> None:
    assert named(after(STATES[state], EVENTS[event], 2.0)) == following


def test_the_table_has_every_state_and_every_event() -> None:
    found = [*cells()]
    assert {(state, event) for state, event, _ in found} == {(state, event) for state in STATES for event in EVENTS}


@given(st.lists(st.sampled_from([*EVENTS.values()]), max_size=20))
def test_a_final_state_never_changes_and_every_change_has_a_new_version(events: list[Event]) -> None:
    task = StoredTask(SPEC, 1.0)
    for event in events:
        following = after(task, event, 2.0)
        assert following is task or (not task.is_final and following.version == task.version + 1)
        if following.status == "succeeded":
            assert following.exit_code == 0
        task = following


def test_an_engine_cannot_report_a_success_without_exit_code_0() -> None:
    with pytest.raises(ValueError, match="exit code 0"):
        Observed("succeeded", exit_code=1)
