"""The state a GPU is in, `hw.status`, derived from what it says. The first rule that applies decides."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping

from otel_zernel_receivers.nvml.points import metrics as m
from otel_zernel_receivers.nvml.points.series import Stream

STATES = ("ok", "degraded", "predicted_failure", "failed")

FATAL_XIDS = frozenset({48, 62, 64, 74, 79, 95, 119, 120, 140})
"""XIDs after which the GPU needs a reset: double-bit ECC error, halted microcontroller, failed row remapping, NVLink
error, fallen off the bus, uncontained memory error, GSP without an answer or in error, unrecovered ECC error
(https://docs.nvidia.com/deploy/xid-errors/)."""

Values = Mapping[str, Mapping[Stream, float]]
"""The last value of every series, by metric."""


def _any(values: Values, metric: str, *those: tuple[str, str]) -> bool:
    """Whether a series of the metric, with those attributes, is not 0."""
    return any(value > 0 and set(those) <= set(one.attributes) for one, value in values.get(metric, {}).items())


def _narrow(values: Values) -> bool:
    width = sum(values.get("zernel.gpu.pcie.link.width", {}).values())
    return 0 < width < sum(values.get("zernel.gpu.pcie.link.width.limit", {}).values())


Rule = tuple[str, str, Callable[[Values], bool]]

RULES: tuple[Rule, ...] = (
    ("failed", "a row could not be remapped", lambda now: _any(now, "zernel.gpu.memory.row_remap.failed")),
    ("failed", "the driver asks for a recovery action", lambda now: _any(now, "zernel.gpu.recovery_action")),
    (
        "predicted_failure",
        "rows or pages wait for a reset to be replaced",
        lambda now: (
            _any(now, "zernel.gpu.memory.row_remap.pending") or _any(now, "zernel.gpu.memory.retired_pages.pending")
        ),
    ),
    (
        "predicted_failure",
        "a memory channel or TPC waits for a reset to be repaired",
        lambda now: _any(now, "zernel.gpu.repair.pending"),
    ),
    (
        "predicted_failure",
        "a bank has no spare rows left",
        lambda now: _any(now, "zernel.gpu.memory.row_remap.banks", (m.AVAILABILITY, "none")),
    ),
    (
        "predicted_failure",
        "SRAM errors exceeded NVIDIA's threshold",
        lambda now: _any(now, "zernel.gpu.ecc.sram.threshold_exceeded"),
    ),
    (
        "degraded",
        "uncorrected ECC errors since the driver was loaded",
        lambda now: _any(now, "hw.errors", (m.ERROR, "uncorrected"), (m.ECC_COUNTER, "volatile")),
    ),
    (
        "degraded",
        "the hardware holds the clocks down (heat or power brake)",
        lambda now: any(
            _any(now, "zernel.gpu.throttle.active", (m.REASON, reason))
            for reason in ("hw_slowdown", "hw_thermal_slowdown", "hw_power_brake")
        ),
    ),
    (
        "degraded",
        "an NVLink is down while others are up",
        lambda now: (
            _any(now, "zernel.gpu.nvlink.links", (m.LINK_STATE, "inactive"))
            and _any(now, "zernel.gpu.nvlink.links", (m.LINK_STATE, "active"))
        ),
    ),
    ("degraded", "fewer PCIe lanes than possible", _narrow),
)
"""State, the condition in words, and the condition."""

WATCHED = frozenset(
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
        "zernel.gpu.pcie.link.width",
        "zernel.gpu.pcie.link.width.limit",
    }
)
"""What the rules look at: asked for `hw.status` even where it is not sent."""


def state_of(latest: Mapping[Stream, float], xids: Iterable[int]) -> str:
    """The state of a GPU that answers: from the last value of every series of `WATCHED`, and its XIDs since its driver
    was loaded."""
    if not FATAL_XIDS.isdisjoint(xids):
        return "failed"
    watched: defaultdict[str, dict[Stream, float]] = defaultdict(dict)
    for one, value in latest.items():
        watched[one.metric][one] = value
    return next((state for state, _, applies in RULES if applies(watched)), "ok")
