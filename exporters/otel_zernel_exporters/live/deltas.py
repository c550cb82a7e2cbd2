"""The difference between two renderings of the state."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

Path = list[str]
_OVERHEAD: Final = 4
"""Items that an empty delta counts for."""


@dataclass(slots=True)
class StateDifference:
    """The changes from one state to the next."""

    set: list[list[Any]] = field(default_factory=list)
    """Pairs of a path and a value, as readers get them: a copy of 30,000 would hold the event loop."""
    remove: list[Path] = field(default_factory=list)
    timeline: dict[str, Sequence[Any]] = field(default_factory=dict)
    heat: dict[str, Sequence[Any]] = field(default_factory=dict)
    """By job."""
    shares: dict[str, Sequence[Any]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.set or self.remove or self.timeline or self.heat or self.shares)

    @property
    def size(self) -> int:
        """About the number of values, for the bound of memory."""
        values = sum(len(value) if isinstance(value, dict | list) else 1 for _, value in self.set)
        rows = sum(map(len, self.timeline.values()))
        columns = sum(len(column[2]) for columns in self.heat.values() for column in columns)
        shares = 5 * sum(map(len, self.shares.values()))
        return _OVERHEAD + values + len(self.remove) + 10 * rows + columns + shares

    def compare(self, path: Path, before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> None:
        """Adds the changes of the object at `path`, field by field. None: it is not there."""
        if after is None:
            if before is not None:
                self.remove.append(path)
        elif before is None:
            self.set.append([path, after])
        else:
            self.set += [[[*path, key], value] for key, value in after.items() if before.get(key, _NONE) != value]
            self.remove += [[*path, key] for key in before if key not in after]

    def delta(self, seq: int, time_ms: int) -> dict[str, Any]:
        """The delta as readers get it (docs/live.md)."""
        found: dict[str, Any] = {"seq": seq, "time": time_ms}
        if self.set:
            found["set"] = self.set
        if self.remove:
            found["remove"] = self.remove
        append = {"timeline": self.timeline, "heat": self.heat, "shares": self.shares}
        if kept := {name: value for name, value in append.items() if value}:
            found["append"] = kept
        return found


_NONE: Final = object()
