"""The readings of the GPUs, as `nvml` emits them. The GPU of the slow rank is hot and has an XID error."""

import random
from collections.abc import Iterator

from opentelemetry.proto.metrics.v1.metrics_pb2 import ResourceMetrics

from examples.simulated_job.encoding import Attributes, NumberKind, Reading, number, of_resource
from examples.simulated_job.training import SECOND, STRAGGLER, Rank

SCOPE = "otel_zernel_receivers.nvml"
_GIB = 1 << 30


class Gpu:
    """The GPU of a rank, with its counters. `start_ns` is the start of the simulation."""

    def __init__(self, rank: Rank, start_ns: int) -> None:
        self._rank = rank
        self._is_hot = rank.number == STRAGGLER
        self._start_ns = start_ns
        self._joules = 1e6

    def read(self, reading: Reading) -> ResourceMetrics:
        """All metrics of the GPU."""
        gpu: Attributes = {
            "hw.id": f"GPU-00000000-0000-0000-0000-{self._rank.number:012}",
            "hw.type": "gpu",
            "hw.name": f"GPU {self._rank.gpu}",
            "hw.model": "NVIDIA H100 80GB HBM3",
            "zernel.gpu.index": self._rank.gpu,
        }
        parts = (self._load(), self._state(reading), self._links(), self._health(reading))
        metrics = (
            number(reading, name, unit, value, {**gpu, **labels}, kind)
            for part in parts
            for name, unit, kind, labels, value in part
        )
        return of_resource({"host.name": self._rank.host, **gpu}, SCOPE, metrics)

    def _load(self) -> Iterator[tuple[str, str, NumberKind, Attributes, float]]:
        waits = 0.6 if self._rank.steps and self._rank.steps[-1].load > 0.05 else 1.0
        yield "hw.gpu.utilization", "1", "gauge", {"hw.gpu.task": "general"}, 0.97 * waits
        for engine, share in (("graphics", 0.96), ("sm", 0.71), ("tensor", 0.46), ("dram", 0.38)):
            value = share * waits * random.uniform(0.95, 1)
            yield "zernel.gpu.engine.active", "1", "gauge", {"zernel.gpu.engine": engine}, value
        yield "zernel.gpu.sm.occupancy", "1", "gauge", {}, 0.35 * random.uniform(0.9, 1)

    def _state(self, reading: Reading) -> Iterator[tuple[str, str, NumberKind, Attributes, float]]:
        watts = 430.0 if self._is_hot else random.uniform(600, 660)
        seconds = (reading.end_ns - reading.start_ns) / SECOND
        self._joules += watts * seconds
        running = (reading.end_ns - self._start_ns) / SECOND
        process: Attributes = {"process.pid": self._rank.pid, "process.executable.name": "python3.12"}
        yield "hw.gpu.memory.usage", "By", "up_down", {}, 66 * _GIB
        yield "hw.gpu.memory.limit", "By", "up_down", {}, 80 * _GIB
        yield "zernel.gpu.process.memory.usage", "By", "up_down", process, 65 * _GIB
        yield "hw.power", "W", "gauge", {}, watts
        yield "zernel.gpu.power.limit.enforced", "W", "gauge", {}, 700.0
        yield "hw.energy", "J", "sum", {}, self._joules
        yield "hw.temperature", "Cel", "gauge", {"hw.sensor_location": "gpu"}, 86.0 if self._is_hot else 62.0
        clock = 1.2e9 if self._is_hot else 1.755e9
        yield "zernel.gpu.clock", "Hz", "gauge", {"zernel.gpu.clock.domain": "sm"}, clock
        for reason, holds in (("sw_power_cap", not self._is_hot), ("hw_thermal_slowdown", self._is_hot)):
            labels: Attributes = {"zernel.gpu.throttle.reason": reason}
            yield "zernel.gpu.throttle.active", "", "gauge", labels, int(holds)
            yield "zernel.gpu.throttle.time", "s", "sum", labels, running if holds else 0.0

    def _links(self) -> Iterator[tuple[str, str, NumberKind, Attributes, float]]:
        for direction in ("transmit", "receive"):
            labels: Attributes = {"network.io.direction": direction, "zernel.gpu.counter.source": "profiler"}
            yield "zernel.gpu.pcie.throughput", "By/s", "gauge", labels, random.uniform(1e9, 2e9)
            yield "zernel.gpu.nvlink.throughput", "By/s", "gauge", labels, random.uniform(80e9, 90e9)
        for state, links in (("active", 18), ("inactive", 0)):
            yield "zernel.gpu.nvlink.links", "{link}", "up_down", {"zernel.gpu.nvlink.state": state}, links
        yield "zernel.gpu.nvlink.errors", "{error}", "sum", {"error.type": "replay"}, int(self._is_hot)
        yield "zernel.gpu.pcie.replays", "{replay}", "sum", {}, 0
        yield "zernel.gpu.pcie.link.width", "{lane}", "gauge", {}, 16

    def _health(self, reading: Reading) -> Iterator[tuple[str, str, NumberKind, Attributes, float]]:
        for state in ("ok", "degraded", "predicted_failure", "failed"):
            holds = state == ("degraded" if self._is_hot else "ok")
            yield "hw.status", "1", "up_down", {"hw.state": state}, int(holds)
        for error in ("corrected", "uncorrected"):
            yield "hw.errors", "{error}", "sum", {"error.type": error}, 0
            yield "zernel.gpu.memory.remapped_rows", "{row}", "sum", {"error.type": error}, 0
        yield "zernel.gpu.memory.row_remap.pending", "", "gauge", {}, 0
        yield "zernel.gpu.memory.row_remap.failed", "", "gauge", {}, 0
        if self._is_hot:
            labels: Attributes = {"zernel.gpu.xid.code": 94}
            yield "zernel.gpu.xid.errors", "{error}", "sum", labels, 1
            yield "zernel.gpu.xid.last_time", "s", "gauge", labels, self._start_ns / SECOND
