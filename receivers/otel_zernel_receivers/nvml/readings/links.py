"""The NVLink links of a board, and the query about their states."""

from collections.abc import Sequence
from typing import Any

from otel_zernel_libraries.training import semconv
from otel_zernel_receivers.nvml.driver.library import Handle, Nvml
from otel_zernel_receivers.nvml.points.series import series
from otel_zernel_receivers.nvml.readings.queries import MAX_FIELDS, NvmlQuery

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
