"""`hw.status`: the state of a GPU, derived from its metrics and XIDs. The first rule that applies decides."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping

from otel_zernel_libraries.training import semconv
from otel_zernel_receivers.nvml.points import attributes as a
from otel_zernel_receivers.nvml.points.encoding import Point
from otel_zernel_receivers.nvml.points.series import NvmlSeries, series

STATES = ("ok", "degraded", "predicted_failure", "failed")

FATAL_XIDS = frozenset({48, 62, 64, 74, 79, 95, 119, 120, 140})
"""XIDs after which the GPU needs a reset (https://docs.nvidia.com/deploy/xid-errors/).

In order: double-bit ECC error, halted microcontroller, failed row remapping, NVLink error, fallen off the bus,
uncontained memory error, GSP without an answer, GSP in error, unrecovered ECC error.
"""

LatestValues = Mapping[str, Mapping[NvmlSeries, float]]
"""The latest value of every series, by metric."""


def _any(latest: LatestValues, metric: str, *attributes: tuple[str, str]) -> bool:
    """Whether a series of the metric with these attributes is above 0."""
    values = latest.get(metric, {})
    return any(value > 0 and set(attributes) <= set(one.attributes) for one, value in values.items())


def _has_fewer_lanes(latest: LatestValues) -> bool:
    width = sum(latest.get(semconv.GPU_PCIE_LINK_WIDTH, {}).values())
    return 0 < width < sum(latest.get(semconv.GPU_PCIE_LINK_WIDTH_LIMIT, {}).values())


StatusRule = tuple[str, str, Callable[[LatestValues], bool]]
"""State, the condition in words (for the README), and the condition."""

RULES: tuple[StatusRule, ...] = (
    ("failed", "a row could not be remapped", lambda latest: _any(latest, semconv.GPU_MEMORY_ROW_REMAP_FAILED)),
    ("failed", "the driver requests a recovery action", lambda latest: _any(latest, semconv.GPU_RECOVERY_ACTION)),
    (
        "predicted_failure",
        "rows or pages are to be replaced at the next reset or reboot",
        lambda latest: (
            _any(latest, semconv.GPU_MEMORY_ROW_REMAP_PENDING) or _any(latest, semconv.GPU_MEMORY_RETIRED_PAGES_PENDING)
        ),
    ),
    (
        "predicted_failure",
        "a memory channel or TPC is to be repaired at the next reset",
        lambda latest: _any(latest, semconv.GPU_REPAIR_PENDING),
    ),
    (
        "predicted_failure",
        "a bank has no spare rows left",
        lambda latest: _any(latest, semconv.GPU_MEMORY_ROW_REMAP_BANKS, (semconv.GPU_ROW_REMAP_AVAILABILITY, "none")),
    ),
    (
        "predicted_failure",
        "SRAM errors exceeded NVIDIA's threshold",
        lambda latest: _any(latest, semconv.GPU_ECC_SRAM_THRESHOLD_EXCEEDED),
    ),
    (
        "degraded",
        "uncorrected ECC errors occurred since the driver was loaded",
        lambda latest: _any(latest, "hw.errors", (a.ERROR, "uncorrected")),
    ),
    (
        "degraded",
        "the hardware reduces the clocks (heat or power brake)",
        lambda latest: any(
            _any(latest, semconv.GPU_THROTTLE_ACTIVE, (semconv.GPU_THROTTLE_REASON, reason))
            for reason in ("hw_slowdown", "hw_thermal_slowdown", "hw_power_brake")
        ),
    ),
    (
        "degraded",
        "an NVLink link is inactive while others are active",
        lambda latest: (
            _any(latest, semconv.GPU_NVLINK_LINKS, (semconv.GPU_NVLINK_STATE, "inactive"))
            and _any(latest, semconv.GPU_NVLINK_LINKS, (semconv.GPU_NVLINK_STATE, "active"))
        ),
    ),
    (
        "degraded",
        "the NVLink fabric reports a problem of the GPU",
        lambda latest: _any(latest, semconv.GPU_FABRIC_PROBLEM),
    ),
    ("degraded", "fewer PCIe lanes are in use than possible", _has_fewer_lanes),
)
"""The first rule that applies decides; if none applies, the state is `ok`."""

STATUS_METRICS = frozenset(
    {
        semconv.GPU_MEMORY_ROW_REMAP_FAILED,
        semconv.GPU_RECOVERY_ACTION,
        semconv.GPU_MEMORY_ROW_REMAP_PENDING,
        semconv.GPU_MEMORY_RETIRED_PAGES_PENDING,
        semconv.GPU_MEMORY_ROW_REMAP_BANKS,
        semconv.GPU_REPAIR_PENDING,
        semconv.GPU_ECC_SRAM_THRESHOLD_EXCEEDED,
        "hw.errors",
        semconv.GPU_THROTTLE_ACTIVE,
        semconv.GPU_NVLINK_LINKS,
        semconv.GPU_FABRIC_PROBLEM,
        semconv.GPU_PCIE_LINK_WIDTH,
        semconv.GPU_PCIE_LINK_WIDTH_LIMIT,
    }
)
"""The metrics that the rules read. For `hw.status` they are queried even if they are not sent."""


def state_of(values: Mapping[NvmlSeries, float], xids: Iterable[int]) -> str:
    """The state of a GPU that answers.

    `values` are the latest values of the series of `STATUS_METRICS`, `xids` the codes since the driver was loaded.
    """
    if not FATAL_XIDS.isdisjoint(xids):
        return "failed"
    latest: defaultdict[str, dict[NvmlSeries, float]] = defaultdict(dict)
    for of_metric, value in values.items():
        latest[of_metric.metric][of_metric] = value
    return next((state for state, _, applies in RULES if applies(latest)), "ok")


def status_points(state: str) -> dict[NvmlSeries, Point]:
    """The points of `hw.status` in this state."""
    return {series("hw.status", 1.0, {a.STATE: one}): Point(float(one == state)) for one in STATES}
