"""Snapshots of a thread whose times in each state and counts are chosen."""

from typing import Any

from otel_zernel_libraries.training.ledger import STATES, Activity, Snapshot
from otel_zernel_libraries.training.ledger.snapshots import WAITS

_NONE = (0,) * 4
NOTHING = Snapshot._make(
    (0, (0,) * len(STATES), *[0] * 13, _NONE, _NONE, *[0] * 9, (0,) * len(WAITS), *[0] * 3)
)._replace(known=7)


def after(
    earlier: Snapshot,
    on_cpu: int = 0,
    *,
    waits: dict[Activity, int] | None = None,
    before: float = 0.0,
    **counted: int,
) -> Snapshot:
    """The snapshot after so many ns in each state. `before` is the part of the waits in code before the backward pass,
    0 to 1. `counted` are increases, or the times of launches."""
    spent = [(waits or {}).get(state, 0) if state else on_cpu for state in STATES]
    times = tuple(map(int.__add__, earlier.times, spent))
    fields: dict[str, Any] = {
        name: value if name.endswith("launch") else getattr(earlier, name) + value for name, value in counted.items()
    }
    pairs = zip(WAITS, earlier.before_backward, strict=True)
    fields["before_backward"] = tuple(us + round((waits or {}).get(state, 0) * before / 1000) for state, us in pairs)
    return earlier._replace(**{"first_launch": 0, **fields, "time": earlier.time + sum(spent), "times": times})
