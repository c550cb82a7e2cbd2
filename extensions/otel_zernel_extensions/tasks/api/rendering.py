"""Tasks as JSON."""

from typing import Any, Final

from otel_zernel_extensions.tasks.states.task import STATUSES, StoredTask

_TIME: Final = {"type": "number", "description": "s since 1970"}
TASK: Final = {
    "type": "object",
    "properties": {
        "id": {"type": "string"},
        "name": {"type": "string"},
        "status": {"type": "string", "enum": [*STATUSES]},
        "cancel_requested": {"type": "boolean"},
        "exit_code": {"type": "integer"},
        "signal": {"type": "integer"},
        "reason": {"type": "string"},
        "created": _TIME,
        "started": _TIME,
        "ended": _TIME,
        "command": {"type": "array", "items": {"type": "string"}},
        "env": {"type": "array", "items": {"type": "string"}, "description": "Names only: values may be secrets."},
        "working_dir": {"type": "string"},
        "limits": {"type": "object"},
    },
    "required": ["id", "status", "command", "created"],
}
"""The JSON Schema of a task."""
LIST: Final = {
    "type": "object",
    "properties": {
        "tasks": {"type": "array", "items": TASK},
        "next": {"type": ["integer", "null"], "description": "The value of `after` for the next page."},
    },
}


def rendered(task: StoredTask) -> dict[str, Any]:
    """The task for clients. Unknown fields are left out."""
    spec, limits = task.spec, task.spec.limits
    asked = {"cpu": limits.cpu, "memory": limits.memory, "gpus": limits.gpus or None, "time": limits.time}
    found = {
        "id": spec.id,
        "name": spec.name or None,
        "status": task.status,
        "cancel_requested": task.cancel_requested or None,
        "exit_code": task.exit_code,
        "signal": task.signal,
        "reason": task.reason or None,
        "created": task.created,
        "started": task.started,
        "ended": task.ended,
        "command": [*spec.command],
        "env": sorted(spec.env) or None,
        "working_dir": spec.working_dir,
        "limits": {name: value for name, value in asked.items() if value is not None} or None,
    }
    return {name: value for name, value in found.items() if value is not None}
