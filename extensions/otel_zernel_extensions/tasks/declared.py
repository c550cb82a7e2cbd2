"""The metrics of the extension about itself."""

from otel_zernel.component.declaration import DeclaredMetric, by_name, own

TASKS = DeclaredMetric(
    "zernel.tasks", "{task}", "up_down", "Tasks that are stored, by state.", ("status",), "always", own=True
)
ENDED_TASKS = own(
    "zernel.tasks.ended", "{task}", "Tasks that have ended, by state.", ("status",), "from the first end on"
)
DURATION = DeclaredMetric(
    "zernel.task.duration",
    "s",
    "histogram",
    "Time from the start of a task's command to its end.",
    ("status",),
    "from the first end on",
    own=True,
)
WAIT = DeclaredMetric(
    "zernel.task.wait",
    "s",
    "histogram",
    "Time from the request for a task to the start of its command.",
    (),
    "from the first start on",
    own=True,
)
METRICS = by_name(TASKS, ENDED_TASKS, DURATION, WAIT)
