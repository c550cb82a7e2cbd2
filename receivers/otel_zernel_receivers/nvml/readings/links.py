"""The queries to a board about its NVLink links."""

from collections.abc import Sequence
from typing import Any

from otel_zernel_receivers.nvml.driver.library import Handle, Nvml
from otel_zernel_receivers.nvml.points import metrics as m
from otel_zernel_receivers.nvml.points.series import series
from otel_zernel_receivers.nvml.readings.queries import MAX_FIELDS, NvmlQuery, ReadValues

NVLINKS = 36
"""The largest number of links of a GPU: NVML_NVLINK_MAX_LINKS since NVML 13."""

LINK_STATES = {0: "inactive", 1: "active", 2: "sleep"}
"""NVML_NVLINK_STATE_… in nvml.h."""


def _count_states(states: Sequence[int], nvml: Nvml) -> Sequence[float]:
    """How many links are in each of `LINK_STATES`. Raises `NVMLError` if there is no link."""
    if not states:
        raise nvml.NVMLError(nvml.NVML_ERROR_NOT_SUPPORTED)
    return [float(states.count(state)) for state in LINK_STATES]


def _read_field(field: str, nvml: Nvml, device: Handle) -> list[Any]:
    """The field's value of each link that exists. Raises `NVMLError` if one of them fails: a sum would be too low."""
    id_ = getattr(nvml, f"NVML_FI_DEV_NVLINK_{field}")
    asked = [(id_, link) for link in range(NVLINKS)]
    calls = (asked[start : start + MAX_FIELDS] for start in range(0, NVLINKS, MAX_FIELDS))
    answers = [answer for part in calls for answer in nvml.nvmlDeviceGetFieldValues(device, part)]
    absent = (nvml.NVML_ERROR_NOT_SUPPORTED, nvml.NVML_ERROR_INVALID_ARGUMENT)
    values = [answer for answer in answers if answer.nvmlReturn not in absent]
    for value in values:
        if value.nvmlReturn != nvml.NVML_SUCCESS:
            raise nvml.NVMLError(value.nvmlReturn)
    return values


def _read_states_by_field(nvml: Nvml, device: Handle) -> Sequence[float]:
    return _count_states([link.value.uiVal for link in _read_field("GET_STATE", nvml, device)], nvml)


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


LINK_ERRORS = {
    "replay": "ERROR_DL_REPLAY",
    "recovery": "ERROR_DL_RECOVERY",
    "crc": "ERROR_DL_CRC",
    "malformed_packet": "COUNT_MALFORMED_PACKET_ERRORS",
    "buffer_overrun": "COUNT_BUFFER_OVERRUN_ERRORS",
    "receive": "COUNT_RCV_ERRORS",
    "link_integrity": "COUNT_LOCAL_LINK_INTEGRITY_ERRORS",
    "link_recovery_failed": "COUNT_LINK_RECOVERY_FAILED_EVENTS",
    "symbol": "COUNT_SYMBOL_ERRORS",
}
"""Error types and fields per link: the first three exist on Hopper, the others on Blackwell.

Older boards have totals over all links, which are in `fields.py`.
"""


def _read_errors(field: str) -> ReadValues:
    def read(nvml: Nvml, device: Handle) -> Sequence[float]:
        counts = [_integer(nvml, link) for link in _read_field(field, nvml, device)]
        if not counts:
            raise nvml.NVMLError(nvml.NVML_ERROR_NOT_SUPPORTED)
        return (float(sum(counts)),)

    return read


def _integer(nvml: Nvml, answer: Any) -> int:
    wide = answer.valueType == nvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG
    return int(answer.value.ullVal if wide else answer.value.uiVal)


LINKS: tuple[NvmlQuery, ...] = (
    NvmlQuery(
        "nvmlDeviceGetNvLinkState",
        tuple(series("zernel.gpu.nvlink.links", 1.0, {m.LINK_STATE: state}) for state in LINK_STATES.values()),
        (_read_states_by_field, _read_states_by_link),
    ),
    *(
        NvmlQuery(
            "nvmlDeviceGetFieldValues",
            (series("zernel.gpu.nvlink.errors", 1.0, {m.ERROR: error}),),
            (_read_errors(field),),
        )
        for error, field in LINK_ERRORS.items()
    ),
)
"""The queries about links. Counters of all links are summed."""
