"""The state of a GPU, from the metrics of `nvml` and of `csv` with files of DCGM."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from otel_zernel.otlp.points import AttributeValue
from otel_zernel_exporters.live.state.tables import LONGEST_TEXT
from otel_zernel_libraries.training import HARMLESS_THROTTLING, SeenValue

_MOST_CODES = 64
"""Codes of XID errors, and reasons for lower clocks, of one GPU."""


@dataclass(slots=True)
class LiveGpu:
    """The newest readings of one GPU."""

    host: str
    touched: float = 0.0
    ended_at: float | None = None
    seen_ns: int = 0
    index: int | None = None
    name: str = ""
    values: dict[str, float] = field(default_factory=dict)
    """By field of the state. Values from which fields are computed have names of their own."""
    throttled: set[str] = field(default_factory=set)
    xid: dict[tuple[str, str], int] = field(default_factory=dict)
    """The number of errors by code and GPU instance of MIG."""
    last_xids: set[str] = field(default_factory=set)
    """Codes that were the last error at some time: DCGM reports no numbers."""

    def rendered(self) -> dict[str, Any]:
        """The fields of the live state (docs/live.md)."""
        fields: dict[str, Any] = {"host": self.host or None, "index": self.index, "name": self.name or None}
        fields |= {name: round(self.values[name], 6) for name in _FIELDS if name in self.values}
        if "memory_total" not in self.values and {"memory_used", "memory_free"} <= self.values.keys():
            parts = (self.values.get(name, 0.0) for name in ("memory_used", "memory_free", "memory_reserved"))
            fields["memory_total"] = sum(parts)
        if (limit := self.values.get("power_limit_enforced")) is not None:
            fields["power_limit"] = limit
        fields["throttled"] = sorted(self.throttled) or None
        fields["xid"] = self._xids() or None
        fields["seen"] = self.seen_ns // 1_000_000
        return {name: value for name, value in fields.items() if value is not None}

    def _xids(self) -> dict[str, int]:
        """The number of errors by code, of all GPU instances together."""
        found = Counter[str]()
        for (code, _), count in self.xid.items():
            found[code] += count
        return dict(sorted({**dict.fromkeys(self.last_xids, 1), **found}.items()))

    def describe(self, attributes: Mapping[str, AttributeValue]) -> None:
        """Takes index and model from the attributes of a resource or a point."""
        index = attributes.get("zernel.gpu.index")
        if isinstance(index, int):
            self.index = index
        self.name = str(attributes.get("hw.model") or attributes.get("hw.name") or self.name)[:LONGEST_TEXT]

    def set(self, name: str, value: float | None) -> None:
        """Sets a value; None removes it."""
        if value is None:
            self.values.pop(name, None)
        else:
            self.values[name] = value


def gpu_id_of(seen: SeenValue) -> str:
    """`hw.id`, or else host and index. Empty if the point is about no GPU."""
    id_ = seen.attributes.get("hw.id") or seen.resource.get("hw.id")
    if id_:
        return str(id_)
    index = seen.attributes.get("zernel.gpu.index", seen.resource.get("zernel.gpu.index"))
    return f"{seen.resource.get('host.name', '')}/{index}" if isinstance(index, int) else ""


def _plain(name: str, key: str = "", *allowed: str) -> Callable[[LiveGpu, SeenValue], None]:
    """Reads a gauge into the field `name`. If `key` is given, only points whose attribute is one of `allowed` count."""

    def read(gpu: LiveGpu, seen: SeenValue) -> None:
        if not key or seen.text(key) in allowed:
            gpu.set(name, seen.value)

    return read


def _active(gpu: LiveGpu, seen: SeenValue) -> None:
    engine = seen.text("zernel.gpu.engine")
    if engine in ("sm", "tensor", "dram"):
        gpu.set(f"{engine}_active", seen.value)


def _throttled(gpu: LiveGpu, seen: SeenValue) -> None:
    reason = seen.text("zernel.gpu.throttle.reason")[:LONGEST_TEXT]
    if seen.value and reason not in HARMLESS_THROTTLING and len(gpu.throttled) < _MOST_CODES:
        gpu.throttled.add(reason)
    else:
        gpu.throttled.discard(reason)


def _xid(gpu: LiveGpu, seen: SeenValue) -> None:
    """The end of a series removes its code: the collector of the GPU has begun again."""
    code = seen.text("zernel.gpu.xid.code")[:LONGEST_TEXT]
    of_instance = code, seen.text("zernel.gpu.mig.gpu_instance")[:LONGEST_TEXT]
    if not seen.value:
        gpu.xid.pop(of_instance, None)
        gpu.last_xids.discard(code)
    elif of_instance in gpu.xid or len(gpu.xid) < _MOST_CODES:
        gpu.xid[of_instance] = int(seen.value)


def _last_xid(gpu: LiveGpu, seen: SeenValue) -> None:
    """DCGM reports the code of the last error, and no numbers of errors. 0: there is none since its start."""
    if not seen.value:
        gpu.last_xids.clear()
        if seen.value == 0:
            gpu.xid.clear()
    elif len(gpu.last_xids) < _MOST_CODES:
        gpu.last_xids.add(f"{int(seen.value)}")


_FIELDS = (
    *("utilization", "sm_active", "sm_occupancy", "tensor_active", "dram_active"),
    *("memory_used", "memory_total", "power", "power_limit", "temperature"),
)

GPU_READERS: dict[str, Callable[[LiveGpu, SeenValue], None]] = {
    "hw.gpu.utilization": _plain("utilization", "hw.gpu.task", "", "general"),
    "zernel.gpu.engine.active": _active,
    "zernel.gpu.sm.occupancy": _plain("sm_occupancy"),
    "hw.gpu.memory.usage": _plain("memory_used"),
    "hw.gpu.memory.limit": _plain("memory_total"),
    "zernel.gpu.memory.free": _plain("memory_free"),
    "zernel.gpu.memory.reserved": _plain("memory_reserved"),
    "hw.power": _plain("power"),
    "zernel.gpu.power.limit": _plain("power_limit"),
    "zernel.gpu.power.limit.enforced": _plain("power_limit_enforced"),
    "hw.temperature": _plain("temperature", "hw.sensor_location", "", "gpu"),
    "zernel.gpu.throttle.active": _throttled,
    "zernel.gpu.xid.errors": _xid,
    "zernel.gpu.xid.last": _last_xid,
}
"""By metric: how its points change the GPU. A point without a recorded value removes the field."""
