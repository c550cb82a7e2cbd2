"""dcgm-exporter's long layout: a row for each GPU and field, with the labels it had in Prometheus."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

from otel_zernel.points import AttributeValue, Descriptor, Series, encode_point_attributes, encode_resource
from otel_zernel_receivers.csv.gpu import gpu_resource
from otel_zernel_receivers.csv.labels import parse_labels
from otel_zernel_receivers.csv.layouts import SCOPE, Layout, Stream

PERCENT, MIB, MHZ, MILLI = 0.01, 2.0**20, 1e6, 1e-3


@dataclass(frozen=True, slots=True)
class Measure:
    """A metric, the factor to its unit, and the attributes that tell its series apart."""

    descriptor: Descriptor
    scale: float = 1.0
    attributes: Mapping[str, AttributeValue] = field(default_factory=dict)


def _gauge(name: str, unit: str, scale: float = 1.0, **attributes: str) -> Measure:
    return _measure(name, unit, "gauge", scale, attributes)


def _sum(name: str, unit: str, scale: float = 1.0, **attributes: str) -> Measure:
    return _measure(name, unit, "sum", scale, attributes)


def _up_down(name: str, unit: str, scale: float = 1.0) -> Measure:
    return _measure(name, unit, "up_down", scale, {})


_ATTRIBUTES = {
    "task": "hw.gpu.task",
    "location": "hw.sensor_location",
    "domain": "zernel.gpu.clock.domain",
    "engine": "zernel.gpu.engine",
    "direction": "network.io.direction",
    "source": "zernel.gpu.counter.source",
    "error": "error.type",
    "lifetime": "zernel.gpu.ecc.counter",
}


def _measure(
    name: str, unit: str, kind: Literal["gauge", "sum", "up_down"], scale: float, attributes: Mapping[str, str]
) -> Measure:
    return Measure(Descriptor(name, unit, kind), scale, {_ATTRIBUTES[key]: value for key, value in attributes.items()})


def _active(engine: str) -> Measure:
    return _gauge("zernel.gpu.engine.active", "1", engine=engine)


def _throughput(bus: str, scale: float, source: str, **direction: str) -> Measure:
    return _gauge(f"zernel.gpu.{bus}.throughput", "By/s", scale, source=source, **direction)


def _ecc(error: str, lifetime: str) -> Measure:
    return _sum("hw.errors", "{error}", error=error, lifetime=lifetime)


# Units after NVIDIA's dcgm_fields.h and dcgm-exporter's etc/default-counters.csv. Names are OpenTelemetry's (semantic
# conventions for hardware) where there are any. Fields whose unit NVIDIA's own documents disagree about (the violation
# times) are left out: they pass as they are.
FIELDS: Mapping[str, Measure] = {
    "DCGM_FI_DEV_GPU_UTIL": _gauge("hw.gpu.utilization", "1", PERCENT, task="general"),
    "DCGM_FI_DEV_ENC_UTIL": _gauge("hw.gpu.utilization", "1", PERCENT, task="encoder"),
    "DCGM_FI_DEV_DEC_UTIL": _gauge("hw.gpu.utilization", "1", PERCENT, task="decoder"),
    "DCGM_FI_DEV_MEM_COPY_UTIL": _gauge("zernel.gpu.memory.bandwidth.utilization", "1", PERCENT),
    "DCGM_FI_DEV_FB_USED": _up_down("hw.gpu.memory.usage", "By", MIB),
    "DCGM_FI_DEV_FB_TOTAL": _up_down("hw.gpu.memory.limit", "By", MIB),
    "DCGM_FI_DEV_FB_FREE": _gauge("zernel.gpu.memory.free", "By", MIB),
    "DCGM_FI_DEV_FB_RESERVED": _gauge("zernel.gpu.memory.reserved", "By", MIB),
    "DCGM_FI_DEV_FB_USED_PERCENT": _gauge("hw.gpu.memory.utilization", "1"),  # a ratio, despite its name
    "DCGM_FI_DEV_GPU_TEMP": _gauge("hw.temperature", "Cel", location="gpu"),
    "DCGM_FI_DEV_MEMORY_TEMP": _gauge("hw.temperature", "Cel", location="memory"),
    "DCGM_FI_DEV_POWER_USAGE": _gauge("hw.power", "W"),
    "DCGM_FI_DEV_POWER_MGMT_LIMIT": _gauge("zernel.gpu.power.limit", "W"),
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": _sum("hw.energy", "J", MILLI),
    "DCGM_FI_DEV_FAN_SPEED": _gauge("hw.fan.speed_ratio", "1", PERCENT),
    "DCGM_FI_DEV_SM_CLOCK": _gauge("zernel.gpu.clock", "Hz", MHZ, domain="sm"),
    "DCGM_FI_DEV_MEM_CLOCK": _gauge("zernel.gpu.clock", "Hz", MHZ, domain="memory"),
    "DCGM_FI_DEV_VIDEO_CLOCK": _gauge("zernel.gpu.clock", "Hz", MHZ, domain="video"),
    # A sample of the driver's in KB/s, and the profiler's average in By/s; dcgm-exporter calls the first a counter.
    "DCGM_FI_DEV_PCIE_TX_THROUGHPUT": _throughput("pcie", 1e3, "driver", direction="transmit"),
    "DCGM_FI_DEV_PCIE_RX_THROUGHPUT": _throughput("pcie", 1e3, "driver", direction="receive"),
    "DCGM_FI_PROF_PCIE_TX_BYTES": _throughput("pcie", 1.0, "profiler", direction="transmit"),
    "DCGM_FI_PROF_PCIE_RX_BYTES": _throughput("pcie", 1.0, "profiler", direction="receive"),
    "DCGM_FI_PROF_NVLINK_TX_BYTES": _throughput("nvlink", 1.0, "profiler", direction="transmit"),
    "DCGM_FI_PROF_NVLINK_RX_BYTES": _throughput("nvlink", 1.0, "profiler", direction="receive"),
    # Both directions, in thousands of KiB/s: DCGM divides NVML's KiB/s by 1000 (dcgm-exporter's pull request 658).
    "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL": _throughput("nvlink", 1024e3, "driver"),
    "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": _sum("zernel.gpu.pcie.replays", "{replay}"),
    "DCGM_FI_DEV_XID_ERRORS": _gauge("zernel.gpu.xid.last", ""),  # the code of the last error, not a count
    "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL": _ecc("corrected", "volatile"),
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": _ecc("uncorrected", "volatile"),
    "DCGM_FI_DEV_ECC_SBE_AGG_TOTAL": _ecc("corrected", "aggregate"),
    "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL": _ecc("uncorrected", "aggregate"),
    "DCGM_FI_DEV_RETIRED_SBE": _sum("zernel.gpu.memory.retired_pages", "{page}", error="corrected"),
    "DCGM_FI_DEV_RETIRED_DBE": _sum("zernel.gpu.memory.retired_pages", "{page}", error="uncorrected"),
    "DCGM_FI_DEV_RETIRED_PENDING": _gauge("zernel.gpu.memory.retired_pages.pending", "{page}"),
    "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS": _sum("zernel.gpu.memory.remapped_rows", "{row}", error="corrected"),
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": _sum("zernel.gpu.memory.remapped_rows", "{row}", error="uncorrected"),
    "DCGM_FI_DEV_ROW_REMAP_FAILURE": _gauge("zernel.gpu.memory.row_remap.failed", ""),
    "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL": _sum("zernel.gpu.nvlink.errors", "{error}", error="crc_flit"),
    "DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL": _sum("zernel.gpu.nvlink.errors", "{error}", error="crc_data"),
    "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL": _sum("zernel.gpu.nvlink.errors", "{error}", error="replay"),
    "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL": _sum("zernel.gpu.nvlink.errors", "{error}", error="recovery"),
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": _active("graphics"),
    "DCGM_FI_PROF_SM_ACTIVE": _active("sm"),
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": _active("tensor"),
    "DCGM_FI_PROF_PIPE_FP64_ACTIVE": _active("fp64"),
    "DCGM_FI_PROF_PIPE_FP32_ACTIVE": _active("fp32"),
    "DCGM_FI_PROF_PIPE_FP16_ACTIVE": _active("fp16"),
    "DCGM_FI_PROF_DRAM_ACTIVE": _active("dram"),
    "DCGM_FI_PROF_SM_OCCUPANCY": _gauge("zernel.gpu.sm.occupancy", "1"),
    # Our own measurements may stand in the same file, under their own names: a row is one sample, in s.
    **{
        name: _gauge(name, "s")
        for name in (
            "zernel.cuda.launch.latency",
            "zernel.cuda.sync.wait",
            "zernel.cuda.copy.latency",
            "zernel.nccl.collective.duration",
            "zernel.dataloader.wait",
            "zernel.distributed.sync.wait",
            "zernel.step.duration",
        )
    },
}

# Labels that say again what a column says.
_REPEATED = ("__name__", "gpu", "device", "UUID", "modelName", "Hostname")
_KUBERNETES = {"container": "k8s.container.name", "pod": "k8s.pod.name", "namespace": "k8s.namespace.name"}


class DcgmLayout(Layout):
    """`layout: dcgm`."""

    timestamp = "timestamp"
    needed = ("metric_name", "gpu_id", "uuid", "Hostname")
    optional = ("device", "modelName", *_KUBERNETES, "labels_raw")
    numbers = ("value",)
    sparse = False

    def stream(self, texts: Mapping[str, str], number: str) -> Stream:
        try:
            labels, flawed = parse_labels(texts.get("labels_raw", "")), False
        except ValueError:
            labels, flawed = {}, True
        for repeated in _REPEATED:
            labels.pop(repeated, None)
        resource = _encoded(tuple(_resource(texts, labels).items()))
        name = texts["metric_name"]
        measure = FIELDS.get(name) or Measure(Descriptor(name))
        attributes = {"hw.id": texts["uuid"] or texts["gpu_id"], **labels, **measure.attributes}
        series = Series(resource, SCOPE, measure.descriptor, encode_point_attributes(attributes))
        return Stream(series, measure.scale, flawed)


@lru_cache(maxsize=4096)
def _encoded(resource: tuple[tuple[str, AttributeValue], ...]) -> bytes:
    """A GPU's resource is the same for all of its metrics."""
    return encode_resource(dict(resource))


def _resource(texts: Mapping[str, str], labels: dict[str, str]) -> dict[str, AttributeValue]:
    """The GPU's resource. What it takes from the labels, it takes out of them."""
    resource = gpu_resource(
        uuid=texts["uuid"],
        index=texts["gpu_id"],
        model=texts.get("modelName", ""),
        hostname=texts["Hostname"],
        device=texts.get("device", ""),
        instance=labels.pop("instance", ""),
    )
    resource["service.name"] = labels.pop("job", "")
    resource["hw.driver_version"] = labels.pop("DCGM_FI_DRIVER_VERSION", "")
    for column, attribute in _KUBERNETES.items():
        label = labels.pop(column, "")
        resource[attribute] = texts.get(column) or label
    return {name: value for name, value in resource.items() if value != ""}
