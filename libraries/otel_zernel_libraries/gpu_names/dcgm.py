"""The long layout of dcgm-exporter: the meaning of its columns, fields and labels.

The csv receiver reads this layout, and the csv exporter writes it.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from otel_zernel.otlp.points import Attributes, AttributeValue, Descriptor
from otel_zernel_libraries.gpu_names.descriptions import DESCRIPTIONS
from otel_zernel_libraries.training import semconv

COLUMNS = (
    "timestamp",
    "metric_name",
    "gpu_id",
    "device",
    "uuid",
    "modelName",
    "Hostname",
    "container",
    "pod",
    "namespace",
    "value",
    "labels_raw",
)

KUBERNETES = {"container": "k8s.container.name", "pod": "k8s.pod.name", "namespace": "k8s.namespace.name"}
"""Resource attributes by column."""
LABELS = {"job": "service.name", "instance": "service.instance.id", "DCGM_FI_DRIVER_VERSION": "hw.driver_version"}
"""Resource attributes by label."""
RESOURCE = "resource."
"""The prefix of labels for all other resource attributes. Only the csv exporter writes such labels."""
TYPE, UNIT = "__type__", "__unit__"
"""The labels for the type and unit of a metric that is not a DCGM field. Their names are those of Prometheus 3."""
TYPES: Mapping[str, Literal["gauge", "sum", "up_down"]] = {
    "gauge": "gauge",
    "counter": "sum",
    "updowncounter": "up_down",
}
"""Kinds of metrics by the values of `__type__`. Prometheus has no `updowncounter`; there it is a gauge."""
INTEGERS = frozenset(
    {
        "process.pid",
        semconv.GPU_XID_CODE,
        semconv.GPU_NUMA_NODE,
        semconv.GPU_MIG_GPU_INSTANCE,
        semconv.GPU_MIG_COMPUTE_INSTANCE,
        semconv.GPU_NVLINK_LINK,
        semconv.GPU_P2P_PEER,
    }
)
"""Attributes with integer values. Their label text is read as an integer."""

PERCENT, MIB, MHZ, MILLI, NANO = 0.01, 2.0**20, 1e6, 1e-3, 1e-9


@dataclass(frozen=True, slots=True)
class Measure:
    """A metric, the factor from the row's value to the metric's unit, and the attributes of its points."""

    descriptor: Descriptor
    scale: float = 1.0
    attributes: Mapping[str, AttributeValue] = field(default_factory=dict)
    maybe_percent: bool = False
    """Whether some versions of DCGM report per cent under the name of a ratio. A value above 1 proves it."""


def _gauge(name: str, unit: str, scale: float = 1.0, **attributes: AttributeValue) -> Measure:
    return _measure(name, unit, "gauge", scale, attributes)


def _sum(name: str, unit: str, scale: float = 1.0, **attributes: str) -> Measure:
    return _measure(name, unit, "sum", scale, attributes)


def _up_down(name: str, unit: str, scale: float = 1.0, **attributes: str) -> Measure:
    return _measure(name, unit, "up_down", scale, attributes)


_ATTRIBUTES = {
    "task": "hw.gpu.task",
    "location": "hw.sensor_location",
    "domain": semconv.GPU_CLOCK_DOMAIN,
    "engine": semconv.GPU_ENGINE,
    "direction": "network.io.direction",
    "source": semconv.GPU_COUNTER_SOURCE,
    "error": "error.type",
    "limit": "hw.limit_type",
    "available": semconv.GPU_ROW_REMAP_AVAILABILITY,
    "policy": semconv.GPU_VIOLATION_POLICY,
    "link": semconv.GPU_NVLINK_LINK,
}
ATTRIBUTES = frozenset(_ATTRIBUTES.values())
"""The attributes that tell the fields of one metric apart."""
NVLINKS = 18
"""The links that DCGM has a field for: DCGM_FI_DEV_NVLINK_BANDWIDTH_L0 to L17."""


def _measure(
    name: str, unit: str, kind: Literal["gauge", "sum", "up_down"], scale: float, attributes: Attributes
) -> Measure:
    descriptor = Descriptor(name, unit, kind, DESCRIPTIONS[name])
    return Measure(descriptor, scale, {_ATTRIBUTES[key]: value for key, value in attributes.items()})


def _active(engine: str) -> Measure:
    return _gauge(semconv.GPU_ENGINE_ACTIVE, "1", engine=engine)


def _limit(location: str, limit: str) -> Measure:
    return _gauge("hw.temperature.limit", "Cel", location=location, limit=limit)


def _banks(available: str) -> Measure:
    return _up_down(semconv.GPU_MEMORY_ROW_REMAP_BANKS, "{bank}", available=available)


def _throughput(name: str, scale: float, source: str, **more: AttributeValue) -> Measure:
    return _gauge(name, "By/s", scale, source=source, **more)


_ECC_METRICS = {"volatile": "hw.errors", "aggregate": semconv.GPU_ECC_LIFETIME_ERRORS}
"""Errors since the driver was loaded, and those over the board's lifetime: a sum over both would count errors twice."""


def _ecc(error: str, counter: str) -> Measure:
    return _sum(_ECC_METRICS[counter], "{error}", error=error)


# Units are from NVIDIA's dcgm_fields.h and dcgm-exporter's etc/default-counters.csv. Names are from OpenTelemetry's
# semantic conventions for hardware, if they have one. Violation times are in ns (dcgm_fields.h); older lists of
# dcgm-exporter say us.
FIELDS: Mapping[str, Measure] = {
    "DCGM_FI_DEV_GPU_UTIL": _gauge("hw.gpu.utilization", "1", PERCENT, task="general"),
    "DCGM_FI_DEV_ENC_UTIL": _gauge("hw.gpu.utilization", "1", PERCENT, task="encoder"),
    "DCGM_FI_DEV_DEC_UTIL": _gauge("hw.gpu.utilization", "1", PERCENT, task="decoder"),
    "DCGM_FI_DEV_MEM_COPY_UTIL": _gauge(semconv.GPU_MEMORY_BANDWIDTH_UTILIZATION, "1", PERCENT),
    "DCGM_FI_DEV_FB_USED": _up_down("hw.gpu.memory.usage", "By", MIB),
    "DCGM_FI_DEV_FB_TOTAL": _up_down("hw.gpu.memory.limit", "By", MIB),
    "DCGM_FI_DEV_FB_FREE": _gauge(semconv.GPU_MEMORY_FREE, "By", MIB),
    "DCGM_FI_DEV_FB_RESERVED": _gauge(semconv.GPU_MEMORY_RESERVED, "By", MIB),
    "DCGM_FI_DEV_FB_USED_PERCENT": _gauge("hw.gpu.memory.utilization", "1"),  # a ratio from 0 to 1, despite its name
    "DCGM_FI_DEV_BAR1_USED": _up_down(semconv.GPU_MEMORY_BAR1_USAGE, "By", MIB),
    "DCGM_FI_DEV_BAR1_TOTAL": _up_down(semconv.GPU_MEMORY_BAR1_LIMIT, "By", MIB),
    "DCGM_FI_DEV_GPU_TEMP": _gauge("hw.temperature", "Cel", location="gpu"),
    "DCGM_FI_DEV_GPU_TEMP_LIMIT": _gauge(semconv.GPU_TEMPERATURE_MARGIN, "Cel"),
    "DCGM_FI_DEV_MEMORY_TEMP": _gauge("hw.temperature", "Cel", location="memory"),
    "DCGM_FI_DEV_SHUTDOWN_TEMP": _limit("gpu", "high.critical"),
    "DCGM_FI_DEV_SLOWDOWN_TEMP": _limit("gpu", "throttled"),
    "DCGM_FI_DEV_GPU_MAX_OP_TEMP": _limit("gpu", "high.degraded"),
    "DCGM_FI_DEV_MEM_MAX_OP_TEMP": _limit("memory", "high.degraded"),
    "DCGM_FI_DEV_POWER_USAGE": _gauge("hw.power", "W"),
    "DCGM_FI_DEV_POWER_MGMT_LIMIT": _gauge(semconv.GPU_POWER_LIMIT, "W"),
    "DCGM_FI_DEV_ENFORCED_POWER_LIMIT": _gauge(semconv.GPU_POWER_LIMIT_ENFORCED, "W"),
    "DCGM_FI_DEV_POWER_MGMT_LIMIT_DEF": _gauge(semconv.GPU_POWER_LIMIT_DEFAULT, "W"),
    "DCGM_FI_DEV_POWER_MGMT_LIMIT_MIN": _gauge(semconv.GPU_POWER_LIMIT_MIN, "W"),
    "DCGM_FI_DEV_POWER_MGMT_LIMIT_MAX": _gauge(semconv.GPU_POWER_LIMIT_MAX, "W"),
    "DCGM_FI_DEV_POWER_USAGE_INSTANT": _gauge(semconv.GPU_POWER_INSTANT, "W"),
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": _sum("hw.energy", "J", MILLI),
    "DCGM_FI_DEV_FAN_SPEED": _gauge("hw.fan.speed_ratio", "1", PERCENT),
    "DCGM_FI_DEV_SM_CLOCK": _gauge(semconv.GPU_CLOCK, "Hz", MHZ, domain="sm"),
    "DCGM_FI_DEV_MEM_CLOCK": _gauge(semconv.GPU_CLOCK, "Hz", MHZ, domain="memory"),
    "DCGM_FI_DEV_VIDEO_CLOCK": _gauge(semconv.GPU_CLOCK, "Hz", MHZ, domain="video"),
    "DCGM_FI_DEV_APP_SM_CLOCK": _gauge(semconv.GPU_CLOCK_APPLICATION, "Hz", MHZ, domain="sm"),
    "DCGM_FI_DEV_APP_MEM_CLOCK": _gauge(semconv.GPU_CLOCK_APPLICATION, "Hz", MHZ, domain="memory"),
    "DCGM_FI_DEV_MAX_SM_CLOCK": _gauge(semconv.GPU_CLOCK_LIMIT, "Hz", MHZ, domain="sm"),
    "DCGM_FI_DEV_MAX_MEM_CLOCK": _gauge(semconv.GPU_CLOCK_LIMIT, "Hz", MHZ, domain="memory"),
    "DCGM_FI_DEV_MAX_VIDEO_CLOCK": _gauge(semconv.GPU_CLOCK_LIMIT, "Hz", MHZ, domain="video"),
    "DCGM_FI_DEV_PSTATE": _gauge(semconv.GPU_PERFORMANCE_STATE, ""),
    "DCGM_FI_DEV_PCIE_LINK_GEN": _gauge(semconv.GPU_PCIE_LINK_GENERATION, ""),
    "DCGM_FI_DEV_PCIE_MAX_LINK_GEN": _gauge(semconv.GPU_PCIE_LINK_GENERATION_LIMIT, ""),
    "DCGM_FI_DEV_PCIE_LINK_WIDTH": _gauge(semconv.GPU_PCIE_LINK_WIDTH, "{lane}"),
    "DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH": _gauge(semconv.GPU_PCIE_LINK_WIDTH_LIMIT, "{lane}"),
    # The driver reports a sample in KB/s, the profiler an average in By/s. dcgm-exporter calls the sample a counter.
    "DCGM_FI_DEV_PCIE_TX_THROUGHPUT": _throughput(semconv.GPU_PCIE_THROUGHPUT, 1e3, "driver", direction="transmit"),
    "DCGM_FI_DEV_PCIE_RX_THROUGHPUT": _throughput(semconv.GPU_PCIE_THROUGHPUT, 1e3, "driver", direction="receive"),
    "DCGM_FI_PROF_PCIE_TX_BYTES": _throughput(semconv.GPU_PCIE_THROUGHPUT, 1.0, "profiler", direction="transmit"),
    "DCGM_FI_PROF_PCIE_RX_BYTES": _throughput(semconv.GPU_PCIE_THROUGHPUT, 1.0, "profiler", direction="receive"),
    "DCGM_FI_PROF_NVLINK_TX_BYTES": _throughput(semconv.GPU_NVLINK_THROUGHPUT, 1.0, "profiler", direction="transmit"),
    "DCGM_FI_PROF_NVLINK_RX_BYTES": _throughput(semconv.GPU_NVLINK_THROUGHPUT, 1.0, "profiler", direction="receive"),
    # The sum of both directions, in 1000 KiB/s: DCGM divides NVML's KiB/s by 1000 (dcgm-exporter's pull request 658).
    "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL": _throughput(semconv.GPU_NVLINK_THROUGHPUT, 1024e3, "driver"),
    **{
        f"DCGM_FI_DEV_NVLINK_BANDWIDTH_L{link}": _throughput(
            semconv.GPU_NVLINK_LINK_THROUGHPUT, 1024e3, "driver", link=link
        )
        for link in range(NVLINKS)
    },
    "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": _sum(semconv.GPU_PCIE_REPLAYS, "{replay}"),
    "DCGM_FI_DEV_XID_ERRORS": _gauge(semconv.GPU_XID_LAST, ""),  # the code of the last error, not a count
    "DCGM_FI_DEV_VGPU_LICENSE_STATUS": _gauge(semconv.GPU_VGPU_LICENSED, ""),
    "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL": _ecc("corrected", "volatile"),
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": _ecc("uncorrected", "volatile"),
    "DCGM_FI_DEV_ECC_SBE_AGG_TOTAL": _ecc("corrected", "aggregate"),
    "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL": _ecc("uncorrected", "aggregate"),
    "DCGM_FI_DEV_RETIRED_SBE": _sum(semconv.GPU_MEMORY_RETIRED_PAGES, "{page}", error="corrected"),
    "DCGM_FI_DEV_RETIRED_DBE": _sum(semconv.GPU_MEMORY_RETIRED_PAGES, "{page}", error="uncorrected"),
    "DCGM_FI_DEV_RETIRED_PENDING": _gauge(semconv.GPU_MEMORY_RETIRED_PAGES_PENDING, ""),
    "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS": _sum(semconv.GPU_MEMORY_REMAPPED_ROWS, "{row}", error="corrected"),
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": _sum(semconv.GPU_MEMORY_REMAPPED_ROWS, "{row}", error="uncorrected"),
    "DCGM_FI_DEV_BANKS_REMAP_ROWS_AVAIL_MAX": _banks("max"),
    "DCGM_FI_DEV_BANKS_REMAP_ROWS_AVAIL_HIGH": _banks("high"),
    "DCGM_FI_DEV_BANKS_REMAP_ROWS_AVAIL_PARTIAL": _banks("partial"),
    "DCGM_FI_DEV_BANKS_REMAP_ROWS_AVAIL_LOW": _banks("low"),
    "DCGM_FI_DEV_BANKS_REMAP_ROWS_AVAIL_NONE": _banks("none"),
    "DCGM_FI_DEV_ROW_REMAP_PENDING": _gauge(semconv.GPU_MEMORY_ROW_REMAP_PENDING, ""),
    "DCGM_FI_DEV_ROW_REMAP_FAILURE": _gauge(semconv.GPU_MEMORY_ROW_REMAP_FAILED, ""),
    "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL": _sum(semconv.GPU_NVLINK_ERRORS, "{error}", error="crc_flit"),
    "DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL": _sum(semconv.GPU_NVLINK_ERRORS, "{error}", error="crc_data"),
    "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL": _sum(semconv.GPU_NVLINK_ERRORS, "{error}", error="replay"),
    "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL": _sum(semconv.GPU_NVLINK_ERRORS, "{error}", error="recovery"),
    **{
        f"DCGM_FI_DEV_{name}_VIOLATION": _sum(semconv.GPU_VIOLATION_TIME, "s", NANO, policy=policy)
        for name, policy in (
            ("POWER", "power"),
            ("THERMAL", "thermal"),
            ("SYNC_BOOST", "sync_boost"),
            ("BOARD_LIMIT", "board_limit"),
            ("LOW_UTIL", "low_utilization"),
            ("RELIABILITY", "reliability"),
        )
    },
    # Metrics of dcgm-exporter itself: each health check, and each other GPU.
    "DCGM_EXP_GPU_HEALTH_STATUS": _gauge(semconv.GPU_HEALTH, ""),
    "DCGM_EXP_P2P_STATUS": _gauge(semconv.GPU_P2P_STATUS, ""),
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": _active("graphics"),
    "DCGM_FI_PROF_SM_ACTIVE": _active("sm"),
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": _active("tensor"),
    "DCGM_FI_PROF_PIPE_FP64_ACTIVE": _active("fp64"),
    "DCGM_FI_PROF_PIPE_FP32_ACTIVE": _active("fp32"),
    "DCGM_FI_PROF_PIPE_FP16_ACTIVE": _active("fp16"),
    "DCGM_FI_PROF_PIPE_INT_ACTIVE": _active("integer"),
    "DCGM_FI_PROF_DRAM_ACTIVE": _active("dram"),
    "DCGM_FI_PROF_SM_OCCUPANCY": _gauge(semconv.GPU_SM_OCCUPANCY, "1"),
}
"""Measures by DCGM field, with the names before DCGM 4.6. The csv exporter writes these names."""

_DURATION = re.compile(r"zernel\.(?!gpu\.).+\.(?:latency|wait|duration)")


def implied_descriptor(name: str) -> Descriptor | None:
    """The descriptor of a metric whose rows need no labels for type and unit: a gauge in s.

    Such a name starts with `zernel.` and ends with `.latency`, `.wait` or `.duration`. The result is None for all other
    names. Metrics of GPUs (`zernel.gpu.`) are excluded, because their rows always have the labels.
    """
    return Descriptor(name, "s", "gauge", DESCRIPTIONS.get(name, "")) if _DURATION.fullmatch(name) else None
