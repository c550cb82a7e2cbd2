"""`zernel.gpu.p2p.status`: whether a GPU can access the memory of each other GPU over NVLink."""

from otel_zernel.otlp.points import Attributes
from otel_zernel_libraries.training import semconv
from otel_zernel_receivers.nvml.driver.library import Handle, Nvml
from otel_zernel_receivers.nvml.points.series import NvmlSeries, series
from otel_zernel_receivers.nvml.readings.polling import Measurement, Measurements

P2P_STATES = (
    "OK",
    "ChipsetNotSupported",
    "GPUNotSupported",
    "TopologyNotSupported",
    "DisabledByRegKey",
    "NotSupported",
    "Unknown",
)
"""NVML_P2P_STATUS_… in nvml.h, in the words of dcgm-exporter; the index is the value."""
_UNKNOWN = len(P2P_STATES) - 1


class PeerStatuses:
    """Reads the status towards each other GPU that the driver lists."""

    def __init__(self, index: int) -> None:
        """`index` is that of the GPU itself."""
        self._index = index

    def __call__(self, nvml: Nvml, device: Handle) -> Measurements:
        """Raises `NVMLError`, also if the driver answers for no peer."""
        peers = [peer for peer in range(nvml.nvmlDeviceGetCount()) if peer != self._index]
        statuses = {peer: _status(nvml, device, peer) for peer in peers}
        if statuses and all(status is None for status in statuses.values()):
            raise nvml.NVMLError(nvml.NVML_ERROR_UNKNOWN)
        return dict(_measurement(peer, status) for peer, status in statuses.items())


def _measurement(peer: int, status: int | None) -> tuple[NvmlSeries, Measurement]:
    number = _UNKNOWN if status is None else min(status, _UNKNOWN)
    attributes: Attributes = {semconv.GPU_P2P_PEER: peer, semconv.GPU_P2P_STATE: P2P_STATES[number]}
    return series(semconv.GPU_P2P_STATUS, 1.0, attributes), Measurement(number)


def _status(nvml: Nvml, device: Handle, peer: int) -> int | None:
    """The status towards a GPU; None if that GPU is lost, or belongs to another container."""
    try:
        other = nvml.nvmlDeviceGetHandleByIndex(peer)
        return int(nvml.nvmlDeviceGetP2PStatus(device, other, nvml.NVML_P2P_CAPS_INDEX_NVLINK))
    except nvml.NVMLError as error:
        if error.value in (nvml.NVML_ERROR_NOT_SUPPORTED, nvml.NVML_ERROR_FUNCTION_NOT_FOUND):
            raise
        return None
