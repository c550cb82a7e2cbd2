"""Kills by the kernel's out-of-memory killer, counted by control group."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

_FILES = ("{}/memory.events", "memory/{}/memory.oom_control", "unified/{}/memory.events")
"""In cgroup v2, in v1, and in v2 beside v1, below /sys/fs/cgroup. All have a line `oom_kill NUMBER`."""
_RECENT = 10.0
"""Seconds for which a counted kill explains the end of a process."""


class OomKills:
    """Follows the counters `oom_kill` of control groups, to explain ends by SIGKILL.

    A counter also counts kills of processes that are not watched. So a kill explains one end only, and only for a short
    time.
    """

    def __init__(self, monotonic: Callable[[], float], root: Path = Path("/sys/fs/cgroup")) -> None:
        self._monotonic = monotonic
        self._root = root
        self._counts: dict[str, int] = {}
        self._kills: dict[str, list[float]] = {}
        """By group: when each kill that has explained no end was noticed."""

    def follow(self, groups: Iterable[str]) -> None:
        """Reads the counters of these groups, the paths in /proc/PID/cgroup. The first reading of a counter notices no
        kill. Groups that are missing here are forgotten."""
        before, now = self._counts, self._monotonic()
        self._counts = {group: count for group in set(groups) if (count := self._read(group)) is not None}
        recent = {group: [at for at in kills if at >= now - _RECENT] for group, kills in self._kills.items()}
        new = {group: [now] * (count - before.get(group, count)) for group, count in self._counts.items()}
        self._kills = {group: recent.get(group, []) + new[group] for group in self._counts}

    def explains(self, group: str) -> bool:
        """Whether a recent kill in the group explains the end of a process in it. Uses that kill up."""
        kills = self._kills.get(group)
        if not kills:
            return False
        kills.pop()
        return True

    def _read(self, group: str) -> int | None:
        for pattern in _FILES if group else ():
            with suppress(OSError, ValueError):
                text = (self._root / pattern.format(group.strip("/"))).read_text()
                return int(text.partition("oom_kill ")[2].split("\n")[0])
        return None
