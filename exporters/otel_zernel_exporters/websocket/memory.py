"""The GPU memory of processes, as gauges report it."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from otel_zernel.otlp.points import AttributeValue
from otel_zernel_libraries.training import SeenValue

_MOST_PROCESSES: Final = 1024
"""Pairs of a process and a GPU. A message with so many has 75 KB."""
_LONGEST_TEXT: Final = 64
_LARGEST: Final = 2**53
"""Bytes. JavaScript's numbers hold larger integers only roughly."""

_Key = tuple[str, int, str]
"""Host, pid and GPU."""


@dataclass(slots=True)
class _Use:
    used: int | None = None
    peak: int = 0
    seen_at: float = 0.0


class ProcessMemory:
    """The newest memory of each process on each GPU, in bytes. Times are monotonic, in s."""

    def __init__(self, expiration: float, drop: Callable[[int, str], None]) -> None:
        """`expiration` is the time (s) without data after which a process is forgotten."""
        self._expiration = expiration
        self._drop = drop
        self._uses: dict[_Key, _Use] = {}

    def add(self, seen: SeenValue, *, is_peak: bool, now: float) -> None:
        """Takes a reading. One without a value ends the process's use of the GPU."""
        key = _key_of(seen)
        if key is None:
            return
        if seen.value is None:
            self._end(key, is_peak=is_peak)
            return
        use = self._uses.get(key) or self._new(key, now)
        if use is None:
            return
        amount = int(min(max(seen.value, 0), _LARGEST))
        use.seen_at = now
        if is_peak:
            use.peak = amount
        else:
            use.used = amount

    def rendered(self, now: float) -> Iterator[dict[str, Any]]:
        """The items of `gpu_utilization`, in the order of their arrival."""
        self._forget(now)
        for (_, pid, gpu), use in self._uses.items():
            used = use.used if use.used is not None else 0
            yield {"key": f"{pid}:{gpu}", "current_bytes": used, "peak_bytes": max(use.peak, used)}

    def _end(self, key: _Key, *, is_peak: bool) -> None:
        if not is_peak:
            self._uses.pop(key, None)
        elif (use := self._uses.get(key)) and use.used is None:
            del self._uses[key]

    def _new(self, key: _Key, now: float) -> _Use | None:
        if len(self._uses) >= _MOST_PROCESSES:
            self._forget(now)
        if len(self._uses) >= _MOST_PROCESSES:
            self._drop(1, "max_processes")
            return None
        return self._uses.setdefault(key, _Use())

    def _forget(self, now: float) -> None:
        for key in [key for key, use in self._uses.items() if now - use.seen_at > self._expiration]:
            del self._uses[key]


def _key_of(seen: SeenValue) -> _Key | None:
    """The host, the process and the GPU of a reading; None without a process. The GPU is 0 if it is not known."""
    pid = _either(seen, "process.pid")
    if not isinstance(pid, int) or isinstance(pid, bool):
        return None
    gpu = str(_either(seen, "zernel.gpu.index", 0))[:_LONGEST_TEXT]
    return str(_either(seen, "host.name", ""))[:_LONGEST_TEXT], pid, gpu


def _either(seen: SeenValue, key: str, default: AttributeValue | None = None) -> AttributeValue | None:
    """An attribute of the point, or of its resource."""
    resource: Mapping[str, AttributeValue] = seen.resource
    return seen.attributes.get(key, resource.get(key, default))
