"""Fields of DCGM that are a sum over several series of a metric: the mask of throttle reasons, and NVLink's traffic."""

from collections.abc import Mapping
from dataclasses import dataclass

from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, NumberDataPoint

from otel_zernel.exposition.stream import attributes_key
from otel_zernel.formats.nvidia_smi import THROTTLE_BITS

Sums = dict[tuple[str, bytes, int], tuple[NumberDataPoint, int]]
"""By metric, encoded labels and time: the sum as a point, and the number of its parts.

Without any part, the point has no value: its series ends.
"""


@dataclass(frozen=True, slots=True)
class _Sum:
    name: str
    help_text: str
    parts: int
    """The least number of series in the sum."""


_REASONS = "Current clock event reasons (bitmask of DCGM_CLOCKS_EVENT_REASON_*)."
_NVLINK = "Total number of NVLink bandwidth counters for all lanes."
SUMS: Mapping[str, _Sum] = {
    "zernel.gpu.throttle.active": _Sum("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", _REASONS, 1),
    "zernel.gpu.nvlink.throughput": _Sum("DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", _NVLINK, 2),
}
"""The fields by the metric that is summed. NVLink's traffic needs both directions."""


def weight(metric: str, attributes: Mapping[str, str]) -> float:
    """The factor of a series of the metric in the sum; 0 if it does not count."""
    if metric == "zernel.gpu.throttle.active":
        return float(THROTTLE_BITS.get(attributes.get("zernel.gpu.throttle.reason", ""), 0))
    # DCGM has the sum of both directions in 1000 KiB/s.
    return 1 / 1024e3 if attributes.get("zernel.gpu.counter.source") == "profiler" else 0.0


def add_sums(sums: Sums, fields: dict[tuple[str, str], Metric]) -> None:
    """Adds the newest sum of each series to the metrics of the fields, unless a scraped page has the field itself."""
    newest: dict[tuple[str, bytes], NumberDataPoint] = {}
    for (metric, labels, _), (total, parts) in sorted(sums.items(), key=lambda one: one[0][2]):
        if not parts or parts >= SUMS[metric].parts:
            newest[metric, labels] = total
    for (metric, labels), total in newest.items():
        field = SUMS[metric]
        target = fields.setdefault((field.name, "gauge 0"), Metric(name=field.name, description=field.help_text))
        if all(attributes_key(point.attributes) != labels for point in target.gauge.data_points):
            target.gauge.data_points.append(total)
