"""The metrics of tasks."""

from collections.abc import Mapping

from opentelemetry.metrics import Meter

from otel_zernel_extensions.tasks.declared import DURATION, ENDED_TASKS, TASKS, WAIT
from otel_zernel_extensions.tasks.states.task import Status, StoredTask

_BOUNDS = [1, 5, 10, 30, 60, 300, 600, 1800, 3600, 7200, 14400, 28800, 86400, 172800, 604800]
"""Seconds: from tests to trainings of a week."""


class TaskMetrics:
    """Counts the tasks by state, and measures how long they wait and run."""

    def __init__(self, meter: Meter) -> None:
        self._tasks = meter.create_up_down_counter(TASKS.name, TASKS.unit, TASKS.description)
        self._ended = meter.create_counter(*ENDED_TASKS.counter)
        self._duration, self._wait = (
            meter.create_histogram(one.name, one.unit, one.description, explicit_bucket_boundaries_advisory=_BOUNDS)
            for one in (DURATION, WAIT)
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
