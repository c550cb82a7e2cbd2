"""Snapshots of a thread whose times in each state and counts are chosen."""

from typing import Any

from otel_zernel_libraries.training.ledger import STATES, Activity, Snapshot

_NONE = (0,) * 4
NOTHING = Snapshot._make((0, (0,) * len(STATES), *[0] * 13, _NONE, _NONE, *[0] * 9))._replace(known=7)


def after(before: Snapshot, on_cpu: int = 0, *, waits: dict[Activity, int] | None = None, **counted: int) -> Snapshot:
    """The snapshot after so many ns in each state. `counted` are increases, or the times of launches."""
    spent = [(waits or {}).get(state, 0) if state else on_cpu for state in STATES]
    times = tuple(map(int.__add__, before.times, spent))
    fields: dict[str, Any] = {
        name: value if name.endswith("launch") else getattr(before, name) + value for name, value in counted.items()
    }
    return before._replace(**{"first_launch": 0, **fields, "time": before.time + sum(spent), "times": times})
