"""GPM, the hardware counters of Hopper and newer GPUs: means over the time between two samples.

Reading them does not take the counters away from profilers, unlike DCGM's profiling fields on older GPUs.
"""

from collections.abc import Callable
from contextlib import suppress
from math import isnan
from typing import Any
from weakref import finalize

from otel_zernel_libraries.training import semconv
from otel_zernel_receivers.nvml.driver.library import Handle, Nvml, NvmlLibrary
from otel_zernel_receivers.nvml.points import attributes as a
from otel_zernel_receivers.nvml.points.series import PERCENT, NvmlSeries, series
from otel_zernel_receivers.nvml.readings.polling import Measurement, Measurements

MIN_INTERVAL = 0.1
"""Seconds between two samples; over a shorter time, the driver's answers are not reliable (nvml.h)."""
MIB = 2.0**20


def _active(engine: str) -> NvmlSeries:
    return series(semconv.GPU_ENGINE_ACTIVE, PERCENT, {semconv.GPU_ENGINE: engine})


def _throughput(name: str, direction: str) -> NvmlSeries:
    return series(name, MIB, {semconv.GPU_COUNTER_SOURCE: "profiler", a.DIRECTION: direction})


GPM_METRICS: dict[int, NvmlSeries] = {
    1: _active("graphics"),
    2: _active("sm"),
    3: series(semconv.GPU_SM_OCCUPANCY, PERCENT),
    4: _active("integer"),
    5: _active("tensor"),
    10: _active("dram"),
    11: _active("fp64"),
    12: _active("fp32"),
    13: _active("fp16"),
    20: _throughput(semconv.GPU_PCIE_THROUGHPUT, "transmit"),
    21: _throughput(semconv.GPU_PCIE_THROUGHPUT, "receive"),
    60: _throughput(semconv.GPU_NVLINK_THROUGHPUT, "receive"),
    61: _throughput(semconv.GPU_NVLINK_THROUGHPUT, "transmit"),
    100: _throughput(semconv.GPU_C2C_THROUGHPUT, "transmit"),
    101: _throughput(semconv.GPU_C2C_THROUGHPUT, "receive"),
}
"""By NVML_GPM_METRIC_…, in per cent and MiB/s (nvml.h). The csv receiver gives DCGM's profiling fields these names."""


class GpmCounters:
    """The GPM metrics of one board or MIG instance. Each call samples them; the result is since the call before."""

    def __init__(
        self,
        library: NvmlLibrary,
        enabled: frozenset[str],
        monotonic: Callable[[], float],
        gpu_instance: int | None = None,
    ) -> None:
        """`gpu_instance` is the id of a MIG instance; None for a board."""
        self._library = library
        self._monotonic = monotonic
        self._gpu_instance = gpu_instance
        self._metrics = {id_: metric for id_, metric in GPM_METRICS.items() if metric.metric in enabled}
        self._buffers: list[Any] = []
        """Two samples of the driver, the older one first. Empty before the first call."""
        self._taken = 0
        """How many of the buffers hold a sample."""
        self._taken_at = float("-inf")

    def __call__(self, nvml: Nvml, device: Handle) -> Measurements:
        """Empty at the first call, and if the last sample is too recent. Raises `NVMLError`."""
        board = device if self._gpu_instance is None else nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(device)
        if not self._buffers:
            self._allocate(nvml, board)
        if self._monotonic() - self._taken_at < MIN_INTERVAL:
            return {}
        taken, self._taken = self._taken, 0  # a failed sample is no part of a comparison
        if self._gpu_instance is None:
            nvml.nvmlGpmSampleGet(board, self._buffers[0])
        else:
            nvml.nvmlGpmMigSampleGet(board, self._gpu_instance, self._buffers[0])
        self._taken, self._taken_at = min(taken + 1, 2), self._monotonic()
        self._buffers.reverse()
        return self._compare(nvml) if self._taken == 2 else {}

    def _allocate(self, nvml: Nvml, board: Handle) -> None:
        """Raises `NVMLError` if the board does not support GPM."""
        if not nvml.nvmlGpmQueryDeviceSupport(board).isSupportedDevice:
            raise nvml.NVMLError(nvml.NVML_ERROR_NOT_SUPPORTED)
        self._buffers = [nvml.nvmlGpmSampleAlloc() for _ in range(2)]
        finalize(self, _free, nvml, tuple(self._buffers))

    def _compare(self, nvml: Nvml) -> Measurements:
        question = nvml.c_nvmlGpmMetricsGet_t(version=nvml.NVML_GPM_METRICS_GET_VERSION)
        question.numMetrics = len(self._metrics)
        question.sample1, question.sample2 = self._buffers
        for place, id_ in enumerate(self._metrics):
            question.metrics[place].metricId = id_
        nvml.nvmlGpmMetricsGet(question)
        measurements: Measurements = {}
        for place, (id_, metric_) in enumerate(list(self._metrics.items())):
            answer = question.metrics[place]
            if answer.nvmlReturn != nvml.NVML_SUCCESS:
                if self._library.record_error(f"NVML_GPM_METRIC_{id_}", answer.nvmlReturn):
                    del self._metrics[id_]
            elif not isnan(answer.value):  # the driver's answer for a unit that the board does not have
                measurements[metric_] = Measurement(metric_.scaled(answer.value))
        return measurements


def _free(nvml: Nvml, samples: tuple[Any, ...]) -> None:
    for sample in samples:
        with suppress(nvml.NVMLError):
            nvml.nvmlGpmSampleFree(sample)
