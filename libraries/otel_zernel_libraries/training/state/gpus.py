"""A GPU, from the metrics of `nvml` and of `csv` with files of DCGM."""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from otel_zernel.otlp.points import AttributeValue
from otel_zernel_libraries.training import semconv
from otel_zernel_libraries.training.names import HARMLESS_THROTTLING
from otel_zernel_libraries.training.points import LONGEST_TEXT, SeenValue

_MOST_CODES: Final = 64
"""Codes of XID errors, and reasons for lower clocks, of one GPU."""
_MOST_PIDS: Final = 1024


@dataclass(slots=True)
class MeanValue:
    """The mean and the largest of the values of a gauge."""

    total: float = 0.0
    count: int = 0
    largest: float = 0.0

    def add(self, value: float) -> None:
        """Adds one reading."""
        self.largest = max(self.largest, value) if self.count else value
        self.total += value
        self.count += 1

    @property
    def mean(self) -> float | None:
        """None without readings."""
        return self.total / self.count if self.count else None


@dataclass(slots=True)
class SeenGpu:
    """The newest readings of one GPU, and the means of all its readings."""

    host: str
    touched: float = 0.0
    ended_at: float | None = None
    seen_ns: int = 0
    index: int | None = None
    """Its number on the host."""
    name: str = ""
    """Its model; empty if it is not known."""
    values: dict[str, float] = field(default_factory=dict)
    """The newest value by field (docs/development/live_state.md). Values that fields need have names of their own."""
    means: defaultdict[str, MeanValue] = field(default_factory=lambda: defaultdict(MeanValue))
    """By field, since the first reading."""
    throttle_readings: dict[str, MeanValue] = field(default_factory=dict)
    """By reason: 1 for each reading in which it lowered the clocks, else 0."""
    throttled: set[str] = field(default_factory=set)
    """The reasons that lower the clocks now, without the harmless ones."""
    xid: dict[tuple[str, str], int] = field(default_factory=dict)
    """The number of errors by code and GPU instance of MIG."""
    xid_times: dict[str, float] = field(default_factory=dict)
    """The time of the last error by code, s since 1970."""
    last_xids: set[str] = field(default_factory=set)
    """Codes that were the last error at some time: DCGM reports no numbers."""
    pids: dict[int, None] = field(default_factory=dict)
    """The processes that have used its memory."""

    def xids(self) -> dict[str, int]:
        """The number of errors by code, of all GPU instances together."""
        counts = Counter[str]()
        for (code, _), count in self.xid.items():
            counts[code] += count
        return dict(sorted({**dict.fromkeys(self.last_xids, 1), **counts}.items()))

    def slowed(self) -> dict[str, float] | None:
        """By reason that is not harmless: the share of readings in which it lowered the clocks, if any.

        None if there is no reading.
        """
        if not self.throttle_readings:
            return None
        means = sorted(self.throttle_readings.items())
        return {reason: of.mean for reason, of in means if of.mean and reason not in HARMLESS_THROTTLING}

    def describe(self, attributes: Mapping[str, AttributeValue]) -> None:
        """Takes index and model from the attributes of a resource or a point."""
        index = attributes.get(semconv.GPU_INDEX)
        if isinstance(index, int):
            self.index = index
        self.name = str(attributes.get("hw.model") or attributes.get("hw.name") or self.name)[:LONGEST_TEXT]

    def set(self, name: str, value: float | None) -> None:
        """Sets a value; None removes it, and leaves the mean as it is."""
        if value is None:
            self.values.pop(name, None)
        else:
            self.values[name] = value
            self.means[name].add(value)

    def add_user(self, pid: int) -> None:
        """A process has memory on this GPU."""
        self.pids.pop(pid, None)
        self.pids[pid] = None
        if len(self.pids) > _MOST_PIDS:
            del self.pids[next(iter(self.pids))]


def gpu_id_of(seen: SeenValue) -> str:
    """`hw.id`, or else host and index. Empty if the point is about no GPU."""
    id_ = seen.attributes.get("hw.id") or seen.resource.get("hw.id")
    if id_:
        return str(id_)
    index = seen.attributes.get(semconv.GPU_INDEX, seen.resource.get(semconv.GPU_INDEX))
    return f"{seen.resource.get('host.name', '')}/{index}" if isinstance(index, int) else ""


def _plain(name: str, key: str = "", *allowed: str) -> Callable[[SeenGpu, SeenValue], None]:
    """Reads a gauge into the field `name`. If `key` is given, only points whose attribute is one of `allowed` count."""

    def read(gpu: SeenGpu, seen: SeenValue) -> None:
        if not key or seen.text(key) in allowed:
            gpu.set(name, seen.value)

    return read


def _active(gpu: SeenGpu, seen: SeenValue) -> None:
    engine = seen.text(semconv.GPU_ENGINE)
    if engine in ("sm", "tensor", "dram"):
        gpu.set(f"{engine}_active", seen.value)


def _throttled(gpu: SeenGpu, seen: SeenValue) -> None:
    reason = seen.text(semconv.GPU_THROTTLE_REASON)
    if not seen.value or reason in HARMLESS_THROTTLING:
        gpu.throttled.discard(reason)
    elif len(gpu.throttled) < _MOST_CODES:
        gpu.throttled.add(reason)
    if seen.value is not None and (reason in gpu.throttle_readings or len(gpu.throttle_readings) < _MOST_CODES):
        gpu.throttle_readings.setdefault(reason, MeanValue()).add(seen.value)


def _xid(gpu: SeenGpu, seen: SeenValue) -> None:
    """The end of a series removes its code: the collector of the GPU has begun again."""
    code = seen.text(semconv.GPU_XID_CODE)
    of_instance = code, seen.text(semconv.GPU_MIG_GPU_INSTANCE)
    if not seen.value:
        gpu.xid.pop(of_instance, None)
        gpu.last_xids.discard(code)
    elif of_instance in gpu.xid or len(gpu.xid) < _MOST_CODES:
        gpu.xid[of_instance] = int(seen.value)


def _xid_time(gpu: SeenGpu, seen: SeenValue) -> None:
    code = seen.text(semconv.GPU_XID_CODE)
    if not seen.value:
        gpu.xid_times.pop(code, None)
    elif code in gpu.xid_times or len(gpu.xid_times) < _MOST_CODES:
        gpu.xid_times[code] = max(seen.value, gpu.xid_times.get(code, 0.0))


def _last_xid(gpu: SeenGpu, seen: SeenValue) -> None:
    """DCGM reports the code of the last error, and no numbers of errors. 0: there is none since its start."""
    if not seen.value:
        gpu.last_xids.clear()
        if seen.value == 0:
            gpu.xid.clear()
    elif len(gpu.last_xids) < _MOST_CODES:
        gpu.last_xids.add(f"{int(seen.value)}")


GPU_READERS: Final[Mapping[str, Callable[[SeenGpu, SeenValue], None]]] = {
    "hw.gpu.utilization": _plain("utilization", "hw.gpu.task", "", "general"),
    semconv.GPU_ENGINE_ACTIVE: _active,
    semconv.GPU_SM_OCCUPANCY: _plain("sm_occupancy"),
    "hw.gpu.memory.usage": _plain("memory_used"),
    "hw.gpu.memory.limit": _plain("memory_total"),
    "hw.gpu.memory.utilization": _plain("memory_utilization"),
    semconv.GPU_MEMORY_FREE: _plain("memory_free"),
    semconv.GPU_MEMORY_RESERVED: _plain("memory_reserved"),
    semconv.GPU_MIG_ENABLED: _plain("mig"),
    "hw.power": _plain("power"),
    semconv.GPU_POWER_LIMIT: _plain("power_limit"),
    semconv.GPU_POWER_LIMIT_ENFORCED: _plain("power_limit_enforced"),
    "hw.temperature": _plain("temperature", "hw.sensor_location", "", "gpu"),
    semconv.GPU_THROTTLE_ACTIVE: _throttled,
    semconv.GPU_XID_ERRORS: _xid,
    semconv.GPU_XID_LAST_TIME: _xid_time,
    semconv.GPU_XID_LAST: _last_xid,
}
"""By metric: how its points change the GPU. A point without a recorded value ends its series."""
