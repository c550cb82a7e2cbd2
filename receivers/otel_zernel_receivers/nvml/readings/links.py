"""The NVLink links of a board: their states, and the access to the memory of other GPUs."""

from collections.abc import Sequence
from typing import Any

from otel_zernel.otlp.points import Attributes
from otel_zernel_libraries.training import semconv
from otel_zernel_receivers.nvml.driver.library import Handle, Nvml
from otel_zernel_receivers.nvml.points.series import NvmlSeries, series
from otel_zernel_receivers.nvml.readings.polling import Measurement, Measurements
from otel_zernel_receivers.nvml.readings.queries import MAX_FIELDS, NvmlQuery

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
        peer_device = nvml.nvmlDeviceGetHandleByIndex(peer)
        return int(nvml.nvmlDeviceGetP2PStatus(device, peer_device, nvml.NVML_P2P_CAPS_INDEX_NVLINK))
    except nvml.NVMLError as error:
        if error.value in (nvml.NVML_ERROR_NOT_SUPPORTED, nvml.NVML_ERROR_FUNCTION_NOT_FOUND):
            raise
        return None


NVLINKS = 36
"""The largest number of links of a GPU: NVML_NVLINK_MAX_LINKS since NVML 13."""

LINK_STATES = {0: "inactive", 1: "active", 2: "sleep"}
"""NVML_NVLINK_STATE_… in nvml.h."""


def _count_states(states: Sequence[int], nvml: Nvml) -> Sequence[float]:
    """How many links are in each of `LINK_STATES`. Raises `NVMLError` if there is no link."""
    if not states:
        raise nvml.NVMLError(nvml.NVML_ERROR_NOT_SUPPORTED)
    return [float(states.count(state)) for state in LINK_STATES]


def _ask_states(nvml: Nvml, device: Handle) -> list[Any]:
    """The driver's answer for each of the possible links."""
    asked = [(nvml.NVML_FI_DEV_NVLINK_GET_STATE, link) for link in range(NVLINKS)]
    calls = (asked[start : start + MAX_FIELDS] for start in range(0, NVLINKS, MAX_FIELDS))
    return [answer for part in calls for answer in nvml.nvmlDeviceGetFieldValues(device, part)]


def _exists(link: Any, nvml: Nvml) -> bool:
    return link.nvmlReturn not in (nvml.NVML_ERROR_NOT_SUPPORTED, nvml.NVML_ERROR_INVALID_ARGUMENT)


def find_nvlinks(nvml: Nvml, device: Handle) -> Sequence[int]:
    """The numbers of the links that exist; all possible ones if the driver does not know their states."""
    states = _ask_states(nvml, device)
    return [link for link, state in enumerate(states) if _exists(state, nvml)] or range(NVLINKS)


def _read_states_by_field(nvml: Nvml, device: Handle) -> Sequence[float]:
    links = [state for state in _ask_states(nvml, device) if _exists(state, nvml)]
    for link in links:
        if link.nvmlReturn != nvml.NVML_SUCCESS:  # counts without this link would be too low
            raise nvml.NVMLError(link.nvmlReturn)
    return _count_states([link.value.uiVal for link in links], nvml)


def _read_states_by_link(nvml: Nvml, device: Handle) -> Sequence[float]:
    states: list[int] = []
    for link in range(NVLINKS):
        try:
            states.append(nvml.nvmlDeviceGetNvLinkState(device, link))
        except nvml.NVMLError as error:  # a board without NVLink, or the end of its links
            if error.value not in (nvml.NVML_ERROR_NOT_SUPPORTED, nvml.NVML_ERROR_INVALID_ARGUMENT):
                raise
            break
    return _count_states(states, nvml)


LINK_STATES_QUERY = NvmlQuery(
    "nvmlDeviceGetNvLinkState",
    tuple(series(semconv.GPU_NVLINK_LINKS, 1.0, {semconv.GPU_NVLINK_STATE: state}) for state in LINK_STATES.values()),
    (_read_states_by_field, _read_states_by_link),
)
"""How many links are in each state."""
