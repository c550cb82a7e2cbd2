"""Fields of DCGM that are a sum over several series of a metric: the mask of throttle reasons, and NVLink's traffic."""

from collections.abc import Mapping, MutableSequence
from typing import NamedTuple

from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, NumberDataPoint

from otel_zernel.otlp.staleness import has_no_value
from otel_zernel_libraries.gpu_names.dcgm_help import HELP
from otel_zernel_libraries.gpu_names.nvidia_smi import THROTTLE_BITS
from otel_zernel_libraries.prometheus.stream import attributes_key
from otel_zernel_libraries.training import semconv

_REASONS = semconv.GPU_THROTTLE_ACTIVE
_NVLINK, _LINK = semconv.GPU_NVLINK_THROUGHPUT, semconv.GPU_NVLINK_LINK_THROUGHPUT
SUMMED = frozenset({_REASONS, _NVLINK, _LINK})
"""The metrics that are summed."""
_NVLINK_UNIT = 1 / 1024e3
"""DCGM has NVLink's traffic in 1000 KiB/s."""


class SummedSeries(NamedTuple):
    """A series that is a part of a sum."""

    field: str
    weight: float
    """The factor of its values."""
    parts: int
    """The least number of series in the sum. NVLink's traffic needs both directions."""
    source: str = ""
    """Only series with the same source are summed."""


def part_of(metric: str, attributes: Mapping[str, str]) -> SummedSeries | None:
    """The sum that a series belongs to, if any."""
    if metric == _REASONS:
        bit = THROTTLE_BITS.get(attributes.get(semconv.GPU_THROTTLE_REASON, ""))
        return SummedSeries("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", float(bit), 1) if bit else None
    if "network.io.direction" not in attributes:
        return None
    field = f"L{attributes.get(semconv.GPU_NVLINK_LINK)}" if metric == _LINK else "TOTAL"
    source = attributes.get(semconv.GPU_COUNTER_SOURCE, "")
    return SummedSeries(f"DCGM_FI_DEV_NVLINK_BANDWIDTH_{field}", _NVLINK_UNIT, 2, source)


class Sums:
    """The sums over the points of a batch."""

    def __init__(self) -> None:
        self._totals: dict[tuple[SummedSeries, bytes, int], tuple[NumberDataPoint, int]] = {}
        """By part without its weight, encoded labels and time: the sum as a point, and the number of its parts.

        Without any part, the point has no value: its series ends.
        """

    def add(self, part: SummedSeries, labels: bytes, point: NumberDataPoint) -> None:
        """Adds a point to its sum."""
        key = part._replace(weight=0.0), labels, point.time_unix_nano
        total, parts = self._totals.get(key) or (NumberDataPoint.FromString(labels), 0)
        total.time_unix_nano = point.time_unix_nano
        if has_no_value(point):
            total.flags = total.flags if parts else point.flags
        else:
            total.as_double, total.flags = total.as_double + (point.as_double or point.as_int) * part.weight, 0
            parts += 1
        self._totals[key] = total, parts

    def add_to(self, fields: dict[tuple[str, str], Metric]) -> None:
        """Adds the newest sum of each series to the metrics of the fields, unless a scraped page has the field."""
        newest: dict[tuple[str, bytes], NumberDataPoint] = {}
        for (part, labels, _), (total, parts) in sorted(self._totals.items(), key=lambda item: item[0][2]):
            if not parts or parts >= part.parts:
                newest[part.field, labels] = total
        known: dict[str, set[bytes]] = {}
        for (name, labels), total in newest.items():
            points = points_of(fields, name)
            if name not in known:
                known[name] = {attributes_key(point.attributes) for point in points}
            if labels not in known[name]:
                points.append(total)


def points_of(fields: dict[tuple[str, str], Metric], name: str) -> MutableSequence[NumberDataPoint]:
    """The points of a field that is a gauge. Adds the field if it is not there."""
    return fields.setdefault((name, "gauge 0"), Metric(name=name, description=HELP.get(name, ""))).gauge.data_points
