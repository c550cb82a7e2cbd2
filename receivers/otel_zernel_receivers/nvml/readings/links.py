"""NVLink: what a board is asked about each link."""

from collections.abc import Iterable, Sequence
from typing import Any

from otel_zernel_receivers.nvml.driver.library import Handle, Nvml
from otel_zernel_receivers.nvml.points import metrics as m
from otel_zernel_receivers.nvml.points.series import stream
from otel_zernel_receivers.nvml.readings.queries import Ask, Query

NVLINKS = 18
"""The most links a GPU has (NVML_NVLINK_MAX_LINKS)."""

LINK_STATES = {0: "inactive", 1: "active", 2: "sleep"}
"""NVML_NVLINK_STATE_… in nvml.h."""


def _links(states: Iterable[int], nvml: Nvml) -> Sequence[float]:
    found = list(states)
    if not found:
        raise nvml.NVMLError(nvml.NVML_ERROR_NOT_SUPPORTED)
    return [float(found.count(state)) for state in LINK_STATES]


def _by_link(field: str, nvml: Nvml, device: Handle) -> list[Any]:
    """What the links that are there answer. Raises `NVMLError` if one does not: a sum without it would be wrong."""
    id_ = getattr(nvml, f"NVML_FI_DEV_NVLINK_{field}")
    answers = nvml.nvmlDeviceGetFieldValues(device, [(id_, link) for link in range(NVLINKS)])
    absent = (nvml.NVML_ERROR_NOT_SUPPORTED, nvml.NVML_ERROR_INVALID_ARGUMENT)
    there = [one for one in answers if one.nvmlReturn not in absent]
    for one in there:
        if one.nvmlReturn != nvml.NVML_SUCCESS:
            raise nvml.NVMLError(one.nvmlReturn)
    return there


def _links_by_field(nvml: Nvml, device: Handle) -> Sequence[float]:
    return _links([one.value.uiVal for one in _by_link("GET_STATE", nvml, device)], nvml)


def _links_one_by_one(nvml: Nvml, device: Handle) -> Sequence[float]:
    states = []
    for link in range(NVLINKS):
        try:
            states.append(nvml.nvmlDeviceGetNvLinkState(device, link))
        except nvml.NVMLError as error:  # a board without NVLink, or the end of its links
            if error.value not in (nvml.NVML_ERROR_NOT_SUPPORTED, nvml.NVML_ERROR_INVALID_ARGUMENT):
                raise
            break
    return _links(states, nvml)


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
"""By link: the first three are Hopper's, the others Blackwell's. Older boards have totals, which are fields."""


def _link_errors(field: str) -> Ask:
    def ask(nvml: Nvml, device: Handle) -> Sequence[float]:
        counts = [_integer(nvml, one) for one in _by_link(field, nvml, device)]
        if not counts:
            raise nvml.NVMLError(nvml.NVML_ERROR_NOT_SUPPORTED)
        return (float(sum(counts)),)

    return ask


def _integer(nvml: Nvml, answer: Any) -> int:
    wide = answer.valueType == nvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG
    return int(answer.value.ullVal if wide else answer.value.uiVal)


LINKS: tuple[Query, ...] = (
    Query(
        "nvmlDeviceGetNvLinkState",
        tuple(stream("zernel.gpu.nvlink.links", 1.0, {m.LINK_STATE: state}) for state in LINK_STATES.values()),
        (_links_by_field, _links_one_by_one),
    ),
    *(
        Query(
            "nvmlDeviceGetFieldValues",
            (stream("zernel.gpu.nvlink.errors", 1.0, {m.ERROR: error}),),
            (_link_errors(field),),
        )
        for error, field in LINK_ERRORS.items()
    ),
)
"""What a board is asked about its links."""
