"""`hw.status`: the state of a GPU, derived from its metrics and XIDs. The first rule that applies decides."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping

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
    width = sum(latest.get("zernel.gpu.pcie.link.width", {}).values())
    return 0 < width < sum(latest.get("zernel.gpu.pcie.link.width.limit", {}).values())


StatusRule = tuple[str, str, Callable[[LatestValues], bool]]
"""State, the condition in words (for the README), and the condition."""

RULES: tuple[StatusRule, ...] = (
    ("failed", "a row could not be remapped", lambda latest: _any(latest, "zernel.gpu.memory.row_remap.failed")),
    ("failed", "the driver requests a recovery action", lambda latest: _any(latest, "zernel.gpu.recovery_action")),
    (
        "predicted_failure",
        "rows or pages are to be replaced at the next reset or reboot",
        lambda latest: (
            _any(latest, "zernel.gpu.memory.row_remap.pending")
            or _any(latest, "zernel.gpu.memory.retired_pages.pending")
        ),
    ),
    (
        "predicted_failure",
        "a memory channel or TPC is to be repaired at the next reset",
        lambda latest: _any(latest, "zernel.gpu.repair.pending"),
    ),
    (
        "predicted_failure",
        "a bank has no spare rows left",
        lambda latest: _any(latest, "zernel.gpu.memory.row_remap.banks", (a.AVAILABILITY, "none")),
    ),
    (
        "predicted_failure",
        "SRAM errors exceeded NVIDIA's threshold",
        lambda latest: _any(latest, "zernel.gpu.ecc.sram.threshold_exceeded"),
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
            _any(latest, "zernel.gpu.throttle.active", (a.REASON, reason))
            for reason in ("hw_slowdown", "hw_thermal_slowdown", "hw_power_brake")
        ),
    ),
    (
        "degraded",
        "an NVLink link is inactive while others are active",
        lambda latest: (
            _any(latest, "zernel.gpu.nvlink.links", (a.LINK_STATE, "inactive"))
            and _any(latest, "zernel.gpu.nvlink.links", (a.LINK_STATE, "active"))
        ),
    ),
    (
        "degraded",
        "the NVLink fabric reports a problem of the GPU",
        lambda latest: _any(latest, "zernel.gpu.fabric.problem"),
    ),
    ("degraded", "fewer PCIe lanes are in use than possible", _has_fewer_lanes),
)
"""The first rule that applies decides; if none applies, the state is `ok`."""

STATUS_METRICS = frozenset(
    {
        "zernel.gpu.memory.row_remap.failed",
        "zernel.gpu.recovery_action",
        "zernel.gpu.memory.row_remap.pending",
        "zernel.gpu.memory.retired_pages.pending",
        "zernel.gpu.memory.row_remap.banks",
        "zernel.gpu.repair.pending",
        "zernel.gpu.ecc.sram.threshold_exceeded",
        "hw.errors",
        "zernel.gpu.throttle.active",
        "zernel.gpu.nvlink.links",
        "zernel.gpu.fabric.problem",
        "zernel.gpu.pcie.link.width",
        "zernel.gpu.pcie.link.width.limit",
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
