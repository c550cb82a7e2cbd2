"""The state of a GPU, derived from its metrics and XIDs: `hw.status`, and the health checks of DCGM.

The first rule of `hw.status` that applies decides.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

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


Condition = Callable[[LatestValues], bool]


def _any(metric: str, *attributes: tuple[str, str]) -> Condition:
    """Whether a series of the metric with these attributes is above 0."""

    def applies(latest: LatestValues) -> bool:
        values = latest.get(metric, {})
        return any(value > 0 and set(attributes) <= set(measured.attributes) for measured, value in values.items())

    return applies


def _throttled(*reasons: str) -> Condition:
    conditions = [_any(semconv.GPU_THROTTLE_ACTIVE, (semconv.GPU_THROTTLE_REASON, reason)) for reason in reasons]
    return lambda latest: any(applies(latest) for applies in conditions)


def _recovery(action: int) -> Condition:
    return lambda latest: action in latest.get(semconv.GPU_RECOVERY_ACTION, {}).values()


def _has_fewer_lanes(latest: LatestValues) -> bool:
    width = sum(latest.get(semconv.GPU_PCIE_LINK_WIDTH, {}).values())
    return 0 < width < sum(latest.get(semconv.GPU_PCIE_LINK_WIDTH_LIMIT, {}).values())


_INACTIVE = _any(semconv.GPU_NVLINK_LINKS, (semconv.GPU_NVLINK_STATE, "inactive"))
_ACTIVE = _any(semconv.GPU_NVLINK_LINKS, (semconv.GPU_NVLINK_STATE, "active"))


def _has_inactive_link(latest: LatestValues) -> bool:
    """Whether a link is inactive while others are active."""
    return _INACTIVE(latest) and _ACTIVE(latest)


_REMAP_FAILED = _any(semconv.GPU_MEMORY_ROW_REMAP_FAILED)
_REMAP_PENDING = _any(semconv.GPU_MEMORY_ROW_REMAP_PENDING)
_PAGES_PENDING = _any(semconv.GPU_MEMORY_RETIRED_PAGES_PENDING)
_SRAM_THRESHOLD = _any(semconv.GPU_ECC_SRAM_THRESHOLD_EXCEEDED)
_UNCORRECTED = _any("hw.errors", (a.ERROR, "uncorrected"))
_FABRIC_PROBLEM = _any(semconv.GPU_FABRIC_PROBLEM)
_NO_SPARE_ROWS = _any(semconv.GPU_MEMORY_ROW_REMAP_BANKS, (semconv.GPU_ROW_REMAP_AVAILABILITY, "none"))
_HOT_OR_BRAKED = _throttled("hw_slowdown", "hw_thermal_slowdown", "hw_power_brake")

RULES: tuple[tuple[str, str, Condition], ...] = (
    ("failed", "a row could not be remapped", _REMAP_FAILED),
    ("failed", "the driver requests a recovery action", _any(semconv.GPU_RECOVERY_ACTION)),
    (
        "predicted_failure",
        "rows or pages are to be replaced at the next reset or reboot",
        lambda latest: _REMAP_PENDING(latest) or _PAGES_PENDING(latest),
    ),
    (
        "predicted_failure",
        "a memory channel or TPC is to be repaired at the next reset",
        _any(semconv.GPU_REPAIR_PENDING),
    ),
    ("predicted_failure", "a bank has no spare rows left", _NO_SPARE_ROWS),
    ("predicted_failure", "SRAM errors exceeded NVIDIA's threshold", _SRAM_THRESHOLD),
    ("degraded", "uncorrected ECC errors occurred since the driver was loaded", _UNCORRECTED),
    ("degraded", "the hardware reduces the clocks (heat or power brake)", _HOT_OR_BRAKED),
    ("degraded", "an NVLink link is inactive while others are active", _has_inactive_link),
    ("degraded", "the NVLink fabric reports a problem of the GPU", _FABRIC_PROBLEM),
    ("degraded", "fewer PCIe lanes are in use than possible", _has_fewer_lanes),
)
"""State, condition in words (for the README), condition. The first rule that applies decides."""

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
    latest = _by_metric(values)
    return next((state for state, _, applies in RULES if applies(latest)), "ok")


def _by_metric(values: Mapping[NvmlSeries, float]) -> LatestValues:
    """The latest values of series, by metric."""
    latest: defaultdict[str, dict[NvmlSeries, float]] = defaultdict(dict)
    for of_metric, value in values.items():
        latest[of_metric.metric][of_metric] = value
    return latest


def status_points(state: str) -> dict[NvmlSeries, Point]:
    """The points of `hw.status` in this state."""
    return {series("hw.status", 1.0, {a.STATE: state_}): Point(float(state_ == state)) for state_ in STATES}


PASS, WARN, FAIL = 0.0, 10.0, 20.0
"""dcgmHealthWatchResults_t in dcgm_structs.h."""
WATCHES = ("PCIE", "NVLINK", "PMU", "MCU", "MEM", "SM", "INFOROM", "THERMAL", "POWER", "DRIVER", "ALL")
"""The label `health_watch` of dcgm-exporter. `ALL` has the errors of the whole GPU."""
_OK, _XID = "DCGM_FR_OK", "DCGM_FR_XID_ERROR"


class Incident(NamedTuple):
    """A result of a health check that is no pass."""

    watch: str
    error: str
    """The label `health_error_code` of dcgm-exporter."""
    result: float


XIDS: Mapping[int, Incident] = {
    **{xid: Incident("ALL", _XID, FAIL) for xid in sorted(FATAL_XIDS)},
    64: Incident("MEM", "DCGM_FR_ROW_REMAP_FAILURE", FAIL),
    79: Incident("ALL", "DCGM_FR_FALLEN_OFF_BUS", FAIL),
    95: Incident("ALL", "DCGM_FR_UNCONTAINED_ERROR", FAIL),
}
_LOST = XIDS[79]


CHECKS: tuple[tuple[Incident, Condition], ...] = (
    (Incident("MEM", "DCGM_FR_ROW_REMAP_FAILURE", FAIL), _REMAP_FAILED),
    (Incident("MEM", "DCGM_FR_VOLATILE_DBE_DETECTED", FAIL), _UNCORRECTED),
    (Incident("MEM", "DCGM_FR_SRAM_THRESHOLD", WARN), _SRAM_THRESHOLD),
    (Incident("MEM", "DCGM_FR_PENDING_ROW_REMAP", WARN), _REMAP_PENDING),
    (Incident("MEM", "DCGM_FR_PENDING_PAGE_RETIREMENTS", WARN), _PAGES_PENDING),
    (Incident("DRIVER", "DCGM_FR_GPU_RECOVERY_RESET", FAIL), _recovery(1)),
    (Incident("DRIVER", "DCGM_FR_GPU_RECOVERY_REBOOT", FAIL), _recovery(2)),
    (Incident("DRIVER", "DCGM_FR_GPU_RECOVERY_DRAIN_P2P", WARN), _recovery(3)),
    (Incident("DRIVER", "DCGM_FR_GPU_RECOVERY_DRAIN_RESET", FAIL), _recovery(4)),
    (Incident("NVLINK", "DCGM_FR_NVLINK_DOWN", FAIL), _has_inactive_link),
    (
        Incident("NVLINK", "DCGM_FR_FABRIC_PROBE_STATE", FAIL),
        _any(semconv.GPU_FABRIC_PROBLEM, (semconv.GPU_FABRIC_PROBLEM_TYPE, "registration")),
    ),
    (Incident("NVLINK", "DCGM_FR_FIELD_VIOLATION", FAIL), _FABRIC_PROBLEM),
    (
        Incident("THERMAL", "DCGM_FR_CLOCK_THROTTLE_THERMAL", WARN),
        _throttled("sw_thermal_slowdown", "hw_thermal_slowdown"),
    ),
    (Incident("POWER", "DCGM_FR_CLOCK_THROTTLE_POWER", WARN), _throttled("hw_power_brake")),
    (Incident("PCIE", "DCGM_FR_PCIE_WIDTH", WARN), _has_fewer_lanes),
)
"""The results and their conditions. If several of a watch apply, the first one of the highest result counts."""


def health_points(
    values: Mapping[NvmlSeries, float], xids: Iterable[int], *, lost: bool = False
) -> dict[NvmlSeries, Point]:
    """One point for each watch. `values` and `xids` are as of `state_of`. `lost`: the GPU does not answer."""
    latest = _by_metric(values)
    incidents = [_LOST] if lost else []
    incidents += [XIDS[xid] for xid in xids if xid in XIDS]
    incidents += [incident for incident, applies in CHECKS if applies(latest)]
    worst = {watch: Incident(watch, _OK, PASS) for watch in WATCHES}
    for incident in incidents:
        if incident.result > worst[incident.watch].result:
            worst[incident.watch] = incident
    return {
        series(
            semconv.GPU_HEALTH, 1.0, {semconv.GPU_HEALTH_WATCH: problem.watch, semconv.GPU_HEALTH_ERROR: problem.error}
        ): Point(problem.result)
        for problem in worst.values()
    }
