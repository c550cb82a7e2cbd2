"""The counts of events that dcgm-exporter adds to DCGM's fields: XIDs and clock events of the last five minutes."""

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite

from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, Metric, NumberDataPoint

from otel_zernel.otlp.points import key_values
from otel_zernel.otlp.staleness import has_no_value, staleness_metric
from otel_zernel_exporters.prometheus.dcgm_sums import points_of
from otel_zernel_libraries.gpu_names.nvidia_smi import THROTTLE_BITS
from otel_zernel_libraries.gpu_names.xids import xid_text
from otel_zernel_libraries.prometheus.stream import attributes_key
from otel_zernel_libraries.training import semconv

WINDOW_NS = 300 * 10**9
"""The window of dcgm-exporter's defaults."""
_WINDOW_LABEL = {"window_size_in_ms": str(WINDOW_NS // 10**6)}
_REASONS, _XIDS, _LAST_XID = semconv.GPU_THROTTLE_ACTIVE, semconv.GPU_XID_ERRORS, semconv.GPU_XID_LAST
COUNTED = frozenset({_REASONS, _XIDS, _LAST_XID})
"""The metrics that have events."""
_CLOCK_COUNT, _XID_COUNT = "DCGM_EXP_CLOCK_EVENTS_COUNT", "DCGM_EXP_XID_ERRORS_COUNT"
_OWN_LABELS = {*_WINDOW_LABEL, "clock_event", "xid"}
_CLOCK_EVENTS = {
    0x1: "gpu_idle",
    0x2: "clocks_setting",
    0x4: "power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal",
    0x40: "hw_thermal",
    0x80: "hw_power_brake",
    0x100: "display_clocks",
}
"""The label `clock_event` by the reason's bit."""


@dataclass(slots=True)
class _Window:
    """The events of one GPU."""

    first: int
    """The time of its first point, in ns since 1970."""
    newest: int = 0
    newest_value: int = 0
    """The time of its newest point with a value. All series of the GPU have ended if `newest` is later."""
    events: deque[tuple[int, str, float]] = field(default_factory=deque)
    """Time, label and count."""
    totals: dict[bytes, float] = field(default_factory=dict)
    """The last value of each cumulative count, by its attributes."""
    shown: dict[bytes, NumberDataPoint] = field(default_factory=dict)
    """The points of the batch before, by their labels."""

    def counts(self) -> Counter[str]:
        """How often each event happened within the window that ends with the newest point."""
        while self.events and self.events[0][0] <= self.newest - WINDOW_NS:
            self.events.popleft()
        counts: Counter[str] = Counter()
        for _, event, count in self.events:
            counts[event] += count  # type: ignore[assignment]  # a count of OTLP may be a double
        return counts


class Events:
    """Counts events over batches.

    A clock event is a scrape that sees the reason, as in dcgm-exporter. An XID counts from the first batch with its
    GPU on; errors of an unknown time before that do not.
    """

    def __init__(self, known: int) -> None:
        """`known` is the most windows to remember."""
        self._known = known
        self._windows: dict[tuple[str, bytes], _Window] = {}
        self._changed: set[tuple[str, bytes]] = set()

    def add(self, metric: Metric, point: NumberDataPoint, own: Mapping[str, str], labels: bytes) -> None:
        """Adds a point of a metric in `COUNTED`. `own` are its attributes, `labels` those of its GPU."""
        key = (_CLOCK_COUNT if metric.name == _REASONS else _XID_COUNT), labels
        ends = has_no_value(point)
        if key not in self._windows:
            if ends or (metric.name == _LAST_XID and (point.as_double or point.as_int)):
                return  # a last XID says nothing of its time; none says that there was none
            if len(self._windows) >= self._known:
                self._windows.clear()
        window = self._windows.setdefault(key, _Window(point.time_unix_nano))
        window.newest = max(window.newest, point.time_unix_nano)
        self._changed.add(key)
        if ends:
            return
        window.newest_value = max(window.newest_value, point.time_unix_nano)
        if metric.name == _REASONS:
            event = _CLOCK_EVENTS.get(THROTTLE_BITS.get(own.get(semconv.GPU_THROTTLE_REASON, ""), 0), "")
            count = float(bool(event and (point.as_double or point.as_int)))
        elif metric.name == _XIDS:
            event = own.get(semconv.GPU_XID_CODE, "")
            count = _increase(window, metric, point)
        else:
            return
        if count:
            window.events.append((point.time_unix_nano, event, count))

    def add_to(self, fields: dict[tuple[str, str], Metric]) -> None:
        """Adds the counts of the GPUs in this batch. Ends the series of events that left the window, and of ended GPUs.

        GPUs whose counts are in the batch, from a scraped page, have no others.
        """
        scraped = {
            (name, attributes_key(attribute for attribute in point.attributes if attribute.key not in _OWN_LABELS))
            for (name, _), metric in fields.items()
            if name in (_CLOCK_COUNT, _XID_COUNT)
            for point in (metric.sum if metric.HasField("sum") else metric.gauge).data_points
        }
        for name, labels in sorted(self._changed & self._windows.keys()):
            window = self._windows[name, labels]
            counts = window.counts() or {"": 0.0}
            if window.newest_value < window.newest:
                counts = {}
                del self._windows[name, labels]
            if (name, labels) in scraped:
                continue
            label = "clock_event" if name == _CLOCK_COUNT else "xid"
            shown: dict[bytes, NumberDataPoint] = {}
            for event, count in counts.items():
                point = NumberDataPoint.FromString(labels)
                point.attributes.extend(key_values(_WINDOW_LABEL | ({label: event} if event else {})))
                encoded = attributes_key(point.attributes)
                point.time_unix_nano, point.as_double = window.newest, count
                shown[encoded] = point
            ended = [_end(point, window.newest) for encoded, point in window.shown.items() if encoded not in shown]
            points_of(fields, name).extend([*shown.values(), *ended])
            window.shown = shown
        self._changed.clear()


def _increase(window: _Window, metric: Metric, point: NumberDataPoint) -> float:
    """How far a count has grown since its last point."""
    value = point.as_double or float(point.as_int)
    if metric.sum.aggregation_temporality == AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA:
        return value
    key = attributes_key(point.attributes)
    before, window.totals[key] = window.totals.get(key), value
    if before is not None:
        return value - before if value >= before else value
    is_new = window.first < point.time_unix_nano or point.start_time_unix_nano > point.time_unix_nano - WINDOW_NS
    return value if is_new else 0.0


class LastXids:
    """The labels `err_code` and `err_msg` of DCGM_FI_DEV_XID_ERRORS. They change with the value."""

    FIELD = "DCGM_FI_DEV_XID_ERRORS"

    def __init__(self, known: int) -> None:
        """`known` is the most series to remember."""
        self._known = known
        self._labelled: dict[bytes, NumberDataPoint] = {}
        """The last point of each GPU, by the labels of the GPU."""

    def label(self, metric: Metric, labels: bytes) -> None:
        """Labels the last point of the metric, unless a scraped page has done so. Ends the series of another code.

        A value that is no code, such as NaN, gets no labels.
        """
        points = (metric.sum if metric.HasField("sum") else metric.gauge).data_points
        point = points[-1]
        if any(attribute.key == "err_code" for attribute in point.attributes):
            return
        before = self._labelled.pop(labels, None)
        if has_no_value(point):
            if before:
                point.attributes.MergeFrom(before.attributes[len(point.attributes) :])
            return
        if isfinite(point.as_double):
            code = int(point.as_double)
            point.attributes.extend(key_values({"err_code": str(code), "err_msg": xid_text(code)}))
        if len(self._labelled) >= self._known:
            self._labelled.clear()
        self._labelled[labels] = NumberDataPoint(attributes=point.attributes)
        if before and before.attributes != point.attributes:
            points.append(_end(before, point.time_unix_nano))


def _end(point: NumberDataPoint, time_ns: int) -> NumberDataPoint:
    """The staleness point of the point's series."""
    (ended,) = staleness_metric(Metric(), point).gauge.data_points
    ended.time_unix_nano = time_ns
    return ended
