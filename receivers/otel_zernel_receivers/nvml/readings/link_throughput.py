"""The traffic of NVLink by the driver's counters: of single links, and of boards without GPM."""

from collections.abc import Callable, Iterator

from otel_zernel_libraries.training import semconv
from otel_zernel_receivers.nvml.driver.library import Handle, Nvml, NvmlLibrary
from otel_zernel_receivers.nvml.points import attributes as a
from otel_zernel_receivers.nvml.points.series import NvmlSeries, series
from otel_zernel_receivers.nvml.readings.fields import ALL_LINKS, KIB
from otel_zernel_receivers.nvml.readings.links import find_nvlinks
from otel_zernel_receivers.nvml.readings.polling import FIELD, VALUES, Measurement, Measurements
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
        self._counts, self._read_at = counts, now  # together: a failed read keeps both
        if not self._asked:
            raise nvml.NVMLError(nvml.NVML_ERROR_NOT_SUPPORTED)
        return {
            one: Measurement(one.scaled((count - before[one]) / seconds))
            for one, count in counts.items()
            if seconds > 0 and count >= before.get(one, count + 1)  # a lower count: the driver has reset it
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
            for (one, (counter, _)), answer in zip(part, FIELD.iter_unpack(answers), strict=True):
                _, _, _, _, type_, code, value = answer
                if code == nvml.NVML_SUCCESS:
                    counts[one] = VALUES[type_].unpack_from(value)[0]
                elif self._library.record_error(f"NVML_FI_{counter}", code):
                    del asked[one]
        return counts


def _has_gpm(nvml: Nvml, device: Handle) -> bool:
    try:
        return bool(nvml.nvmlGpmQueryDeviceSupport(device).isSupportedDevice)
    except (AttributeError, nvml.NVMLError):  # older than GPM
        return False
