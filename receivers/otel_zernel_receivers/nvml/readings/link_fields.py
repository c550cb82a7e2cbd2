"""NVML's fields of single links, NVLink and C2C: their series over all links of a board, and the traffic of NVLink."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from otel_zernel_libraries.training import semconv
from otel_zernel_receivers.nvml.driver.library import Handle, Nvml, NvmlLibrary
from otel_zernel_receivers.nvml.points import attributes as a
from otel_zernel_receivers.nvml.points.series import NvmlSeries, series
from otel_zernel_receivers.nvml.readings.fields import ALL_LINKS, KIB
from otel_zernel_receivers.nvml.readings.links import PeerStatuses, find_nvlinks
from otel_zernel_receivers.nvml.readings.polling import FIELD, VALUES, Measurement, Measurements, PolledQuery
from otel_zernel_receivers.nvml.readings.queries import MAX_FIELDS

_BOARD, _LINK = semconv.GPU_NVLINK_THROUGHPUT, semconv.GPU_NVLINK_LINK_THROUGHPUT
LINK_THROUGHPUT_METRICS = frozenset({_BOARD, _LINK})
_COUNTERS = {"transmit": "DEV_NVLINK_THROUGHPUT_DATA_TX", "receive": "DEV_NVLINK_THROUGHPUT_DATA_RX"}
"""pynvml's constants without NVML_FI_, by direction. The counters are in KiB (nvml.h)."""


class LinkThroughput:
    """The means since the call before: the first call has none. Links without a counter are not asked again."""

    def __init__(self, library: NvmlLibrary, enabled: frozenset[str], monotonic: Callable[[], float]) -> None:
        self._library = library
        self._enabled = enabled
        self._monotonic = monotonic
        self._asked: dict[NvmlSeries, tuple[str, int]] | None = None
        """The counter and the scope of each series; None before the first call."""
        self._counts: dict[NvmlSeries, float] = {}
        self._read_at = 0.0

    def __call__(self, nvml: Nvml, device: Handle) -> Measurements:
        """Raises `NVMLError`, also if the board has no such counter."""
        if self._asked is None:
            self._asked = dict(self._find(nvml, device))
        now = self._monotonic()
        counts = self._read(nvml, device, self._asked)
        before, seconds = self._counts, now - self._read_at
        self._counts = counts  # a failed read keeps both
        self._read_at = now
        if not self._asked:
            raise nvml.NVMLError(nvml.NVML_ERROR_NOT_SUPPORTED)
        return {
            link_field: Measurement(link_field.scaled((count - before[link_field]) / seconds))
            for link_field, count in counts.items()
            if seconds > 0 and count >= before.get(link_field, count + 1)  # a lower count: the driver has reset it
        }

    def _find(self, nvml: Nvml, device: Handle) -> Iterator[tuple[NvmlSeries, tuple[str, int]]]:
        scopes: list[tuple[str, int, dict[str, int]]] = []
        if _BOARD in self._enabled and not _has_gpm(nvml, device):
            scopes.append((_BOARD, ALL_LINKS, {}))
        if _LINK in self._enabled:
            scopes += [(_LINK, link, {semconv.GPU_NVLINK_LINK: link}) for link in find_nvlinks(nvml, device)]
        for metric, scope, link in scopes:
            for direction, counter in _COUNTERS.items():
                yield (
                    series(metric, KIB, {semconv.GPU_COUNTER_SOURCE: "driver", a.DIRECTION: direction, **link}),
                    (counter, scope),
                )

    def _read(self, nvml: Nvml, device: Handle, asked: dict[NvmlSeries, tuple[str, int]]) -> dict[NvmlSeries, float]:
        """The counts by series. Forgets the series that the driver has no counter for."""
        counts: dict[NvmlSeries, float] = {}
        every = list(asked.items())
        for start in range(0, len(every), MAX_FIELDS):
            part = every[start : start + MAX_FIELDS]
            fields = [(getattr(nvml, f"NVML_FI_{counter}"), scope) for _, (counter, scope) in part]
            answers = bytes(nvml.nvmlDeviceGetFieldValues(device, fields))
            for (link_field, (counter, _)), answer in zip(part, FIELD.iter_unpack(answers), strict=True):
                _, _, _, _, type_, code, value = answer
                if code == nvml.NVML_SUCCESS:
                    counts[link_field] = VALUES[type_].unpack_from(value)[0]
                elif self._library.record_error(f"NVML_FI_{counter}", code):
                    del asked[link_field]
        return counts


def _has_gpm(nvml: Nvml, device: Handle) -> bool:
    try:
        return bool(nvml.nvmlGpmQueryDeviceSupport(device).isSupportedDevice)
    except (AttributeError, nvml.NVMLError):  # older than GPM
        return False


FindLinks = Callable[[Nvml, Handle], Sequence[int]]
"""The numbers of a board's links. Raises `NVMLError` if the board has no links of this kind."""


@dataclass(frozen=True, slots=True)
class LinkField:
    """A field that has a value for each link."""

    series: NvmlSeries
    id: str
    """The name of pynvml's constant, without NVML_FI_DEV_. The constants have the same numbers in all drivers."""
    combine: Callable[[Iterable[float]], float] = sum
    """Makes one value of those of all links."""


def highest_bit_error_rate(codes: Iterable[float]) -> float:
    """The highest of some bit error rates, in errors per bit.

    A code has the decimal exponent in its bits 0 to 7, negated, and the mantissa in its bits 8 to 11
    (NVML_NVLINK_BER_… in nvml.h). 15e-255 is the driver's rate of a link without errors.
    """
    return max((int(code) >> 8 & 0xF) * 10.0 ** -(int(code) & 0xFF) for code in codes)


def _errors(name: str, error: str, id_: str) -> LinkField:
    return LinkField(series(name, 1.0, {a.ERROR: error}), id_)


def _packets(direction: str, id_: str) -> LinkField:
    return LinkField(series(semconv.GPU_NVLINK_PACKET_IO, 1.0, {a.DIRECTION: direction}), id_)


def _bit_error_rate(error: str, id_: str) -> LinkField:
    return LinkField(series(semconv.GPU_NVLINK_BIT_ERROR_RATE, 1.0, {a.ERROR: error}), id_, highest_bit_error_rate)


NVLINK_FIELDS: tuple[LinkField, ...] = (
    # Hopper. Older boards have totals over all links, which are in `fields.py`.
    _errors(semconv.GPU_NVLINK_ERRORS, "replay", "NVLINK_ERROR_DL_REPLAY"),
    _errors(semconv.GPU_NVLINK_ERRORS, "recovery", "NVLINK_ERROR_DL_RECOVERY"),
    _errors(semconv.GPU_NVLINK_ERRORS, "crc", "NVLINK_ERROR_DL_CRC"),
    # NVLink 5 (Blackwell).
    _packets("transmit", "NVLINK_COUNT_XMIT_BYTES"),
    _packets("receive", "NVLINK_COUNT_RCV_BYTES"),
    _errors(semconv.GPU_NVLINK_ERRORS, "malformed_packet", "NVLINK_COUNT_MALFORMED_PACKET_ERRORS"),
    _errors(semconv.GPU_NVLINK_ERRORS, "buffer_overrun", "NVLINK_COUNT_BUFFER_OVERRUN_ERRORS"),
    _errors(semconv.GPU_NVLINK_ERRORS, "receive", "NVLINK_COUNT_RCV_ERRORS"),
    _errors(semconv.GPU_NVLINK_ERRORS, "link_integrity", "NVLINK_COUNT_LOCAL_LINK_INTEGRITY_ERRORS"),
    _errors(semconv.GPU_NVLINK_ERRORS, "link_recovery_failed", "NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS"),
    _errors(semconv.GPU_NVLINK_ERRORS, "symbol", "NVLINK_COUNT_SYMBOL_ERRORS"),
    _errors(semconv.GPU_NVLINK_ERRORS, "effective", "NVLINK_COUNT_EFFECTIVE_ERRORS"),
    _bit_error_rate("symbol", "NVLINK_COUNT_SYMBOL_BER"),
    _bit_error_rate("effective", "NVLINK_COUNT_EFFECTIVE_BER"),
)
"""The fields of NVLink links."""

C2C_FIELDS: tuple[LinkField, ...] = (
    _errors(semconv.GPU_C2C_ERRORS, "crc", "C2C_LINK_ERROR_INTR"),
    _errors(semconv.GPU_C2C_ERRORS, "replay", "C2C_LINK_ERROR_REPLAY"),
    _errors(semconv.GPU_C2C_ERRORS, "replay_back_to_back", "C2C_LINK_ERROR_REPLAY_B2B"),
)
"""The fields of the links between a GPU and a Grace CPU, since driver 570."""


def _find_c2c_links(nvml: Nvml, device: Handle) -> Sequence[int]:
    (count,) = nvml.nvmlDeviceGetFieldValues(device, [nvml.NVML_FI_DEV_C2C_LINK_COUNT])
    if count.nvmlReturn != nvml.NVML_SUCCESS:
        raise nvml.NVMLError(count.nvmlReturn)
    return range(count.value.uiVal)


def link_queries(enabled: frozenset[str], library: NvmlLibrary, index: int) -> Iterator[PolledQuery]:
    """The queries to the board at `index` about its links that are needed for the `enabled` metrics."""
    if semconv.GPU_P2P_STATUS in enabled:
        yield PolledQuery("nvmlDeviceGetP2PStatus", [PeerStatuses(index)])
    for fields, find_links in ((NVLINK_FIELDS, find_nvlinks), (C2C_FIELDS, _find_c2c_links)):
        wanted = [field for field in fields if field.series.metric in enabled]
        if known := [query for query in wanted if hasattr(library.nvml, f"NVML_FI_DEV_{query.id}")]:
            yield PolledQuery("nvmlDeviceGetFieldValues", [LinkReader(known, find_links, library)])


class LinkReader:
    """Reads fields of all links of a board. The first call finds the links, and the fields that the board has."""

    def __init__(self, fields: Sequence[LinkField], find_links: FindLinks, library: NvmlLibrary) -> None:
        self._library = library
        self._find_links = find_links
        self._fields = {field: getattr(library.nvml, f"NVML_FI_DEV_{field.id}") for field in fields}
        self._links: Sequence[int] = ()

    def __call__(self, nvml: Nvml, device: Handle) -> Measurements:
        """One measurement for each field. A field is left out while one of its links fails. Raises `NVMLError`."""
        self._links = self._links or self._find_links(nvml, device)
        values, failures = self._read(nvml, device)
        failed = {field for field, code in failures if not self._library.record_error(f"NVML_FI_DEV_{field.id}", code)}
        self._fields = {field: id_ for field, id_ in self._fields.items() if field in values or field in failed}
        if not self._fields:
            raise nvml.NVMLError(nvml.NVML_ERROR_NOT_SUPPORTED)
        return {
            field.series: Measurement(field.combine(numbers))
            for field, numbers in values.items()
            if field not in failed
        }

    def _read(self, nvml: Nvml, device: Handle) -> tuple[dict[LinkField, list[float]], set[tuple[LinkField, int]]]:
        """The values of the links that have the field, and the error codes of the others."""
        asked = [(field, id_, link) for field, id_ in self._fields.items() for link in self._links]
        values: defaultdict[LinkField, list[float]] = defaultdict(list)
        failures: set[tuple[LinkField, int]] = set()
        for start in range(0, len(asked), MAX_FIELDS):
            part = asked[start : start + MAX_FIELDS]
            answers = bytes(nvml.nvmlDeviceGetFieldValues(device, [(id_, link) for _, id_, link in part]))
            for (field, _, _), (_, _, _, _, type_, code, value) in zip(part, FIELD.iter_unpack(answers), strict=True):
                if code == nvml.NVML_SUCCESS:
                    values[field].append(VALUES[type_].unpack_from(value)[0])
                else:
                    failures.add((field, code))
        return values, failures
