"""The live state of a training, and how it changes: docs/development/live_state.md has the fields."""

from collections.abc import Iterable
from typing import Any, Final, Protocol

SCHEMA: Final = 2
"""The version of the state's form. It grows if a field changes its meaning or leaves."""


class LiveSource(Protocol):
    """Has the live state: the exporter `live`, for a program that runs it without HTTP. Call it in the event loop."""

    def snapshot(self) -> dict[str, Any]:
        """The whole state of now, which the caller may change with `apply_delta`."""

    def changes_since(self, seq: int) -> list[dict[str, Any]] | None:
        """The deltas from the state with this number to now, in order; none if nothing has changed.

        None if they are not kept any more: take a snapshot. They are kept for readers that call about once a second.
        """


def apply_delta(state: dict[str, Any], delta: dict[str, Any]) -> None:
    """Changes the state in place to the one after the delta. Nothing of the delta is changed later on.

    Raises `KeyError` if the delta does not follow the state.
    """
    for path, value in delta.get("set", ()):
        _parent(state, path)[path[-1]] = list(value) if isinstance(value, list) else _copy(value)
    for path in delta.get("remove", ()):
        _parent(state, path).pop(path[-1], None)
    appended = delta.get("append", {})
    limits = state["limits"]
    for rank, rows in appended.get("timeline", {}).items():
        _append(state["timeline"].setdefault(rank, []), rows, limits["timeline"])
    for job, columns in appended.get("heat", {}).items():
        _append(state["heat"]["columns"].setdefault(job, []), columns, limits["heat"])
    for job, points in appended.get("shares", {}).items():
        _append(state["shares"].setdefault(job, []), points, limits["shares"])
    state["seq"], state["time"] = delta["seq"], delta["time"]


def _parent(state: dict[str, Any], path: list[str]) -> dict[str, Any]:
    for key in path[:-1]:
        state = state[key]
    return state


def _copy(value: Any) -> Any:
    return dict(value) if isinstance(value, dict) else value


def _append(values: list[Any], added: Iterable[Any], most: int) -> None:
    values.extend(added)
    del values[: max(0, len(values) - most)]
