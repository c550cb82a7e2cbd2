"""One device, a board or a MIG instance, while its driver is loaded. Used by one thread at a time."""

from collections.abc import Iterable, Iterator
from functools import partial

from otel_zernel.batch import Batch
from otel_zernel.component import Context
from otel_zernel_libraries.training import semconv
from otel_zernel_receivers.nvml.config import NvmlConfig
from otel_zernel_receivers.nvml.driver.events import Xid, XidCounts
from otel_zernel_receivers.nvml.driver.library import Handle, NvmlLibrary
from otel_zernel_receivers.nvml.gpus.history import DeviceHistory, DriverCounter
from otel_zernel_receivers.nvml.gpus.identity import GpuIdentity
from otel_zernel_receivers.nvml.points import attributes as a
from otel_zernel_receivers.nvml.points.encoding import Encoder, Point
from otel_zernel_receivers.nvml.points.histograms import DurationHistogram, SampleHistogram
from otel_zernel_receivers.nvml.points.metrics import METRICS, QUERY_DURATION
from otel_zernel_receivers.nvml.points.series import MILLI, NvmlSeries, series
from otel_zernel_receivers.nvml.readings.board import BOARD, INSTANCE, MEMORY
from otel_zernel_receivers.nvml.readings.fields import FIELDS
from otel_zernel_receivers.nvml.readings.gpm import GPM_METRICS, GpmCounters
from otel_zernel_receivers.nvml.readings.link_fields import LINK_THROUGHPUT_METRICS, LinkThroughput, link_queries
from otel_zernel_receivers.nvml.readings.polling import Measurement, PolledQuery, QueryPoller, polled_queries
from otel_zernel_receivers.nvml.readings.processes import RUNNING_FUNCTIONS, RUNNING_VERSIONS
from otel_zernel_receivers.nvml.readings.samples import POWER, SAMPLED_SERIES, SampleRing
from otel_zernel_receivers.nvml.readings.status import STATUS_METRICS, health_points, state_of, status_points

SeriesPoints = dict[NvmlSeries, Point]

MIN_DRAIN_INTERVAL = 0.5
"""Seconds. A buffer that is overwritten faster than this loses samples, which are counted."""
_ENERGY = series("hw.energy", MILLI)
_ENERGY_OF_SAMPLES = series("hw.energy", 1.0, {semconv.GPU_ENERGY_SOURCE: "power_samples"})
_ENERGY_OF_READINGS = series("hw.energy", 1.0, {semconv.GPU_ENERGY_SOURCE: "power_readings"})
_POWER = series("hw.power", MILLI)
_REPLACED = frozenset({semconv.GPU_HEALTH, semconv.GPU_P2P_STATUS})
"""Metrics of which an attribute says in words what the value says as a number."""


class Device:
    """A board or a MIG instance, which can be scraped."""

    def __init__(
        self,
        library: NvmlLibrary,
        handle: Handle,
        identity: GpuIdentity,
        history: DeviceHistory,
        xids: XidCounts,
        config: NvmlConfig,
        context: Context,
    ) -> None:
        self.identity = identity
        self._library = library
        self._handle = handle
        self._history = history
        self._xids = xids
        self._context = context
        self._enabled = config.enabled()
        self._is_board = "hw.parent" not in identity.resource
        self._encoder = Encoder(identity.resource, identity.of_points)
        self._info = {series(semconv.GPU_INFO, 1.0, identity.details): Point(1)}
        self._xids_before = {xid: count for xid, (count, _) in xids.of_gpu(identity.uuid).items()}
        self._latest: dict[NvmlSeries, float] = {}
        """The latest values of the series of `STATUS_METRICS`."""
        self._poller = QueryPoller(library, handle, config.slow_query, context.clock.monotonic)
        self._poller.queries = list(self._queries(processes=config.processes.enabled))
        self._rings = [ring for ring in history.rings.values() if self._is_board and self._needs(ring)]

    def _queries(self, *, processes: bool) -> Iterator[PolledQuery]:
        metrics = self._enabled
        if metrics & {"hw.status", semconv.GPU_HEALTH}:
            metrics |= STATUS_METRICS
        if "hw.energy" in metrics:
            metrics |= {"hw.power"}
        board = self._is_board
        yield from polled_queries(BOARD if board else INSTANCE, FIELDS if board else (), metrics, self._library)
        if board:
            yield from link_queries(metrics, self._library, self.identity.index)
            if metrics & LINK_THROUGHPUT_METRICS:
                throughput = LinkThroughput(self._library, metrics, self._context.clock.monotonic)
                yield PolledQuery("nvmlDeviceGetFieldValues", [throughput])
        if any(series.metric in metrics for series in GPM_METRICS.values()):
            instance = None if board else self.identity.gpu_instance
            counters = GpmCounters(self._library, metrics, self._context.clock.monotonic, instance)
            yield PolledQuery("nvmlGpmMetricsGet", [counters])
        if processes:
            yield from self._process_queries()

    def _process_queries(self) -> Iterator[PolledQuery]:
        processes = self._history.processes
        for type_, function in RUNNING_FUNCTIONS.items():
            variants = [partial(processes.running, type_, function + version) for version in RUNNING_VERSIONS]
            yield PolledQuery(function, [*variants])
        if self._is_board and semconv.GPU_PROCESS_UTILIZATION in self._enabled:
            yield PolledQuery("nvmlDeviceGetProcessUtilization", [processes.utilization])

    def _needs(self, ring: SampleRing) -> bool:
        return SAMPLED_SERIES[ring.kind].metric in self._enabled or (
            ring.kind == POWER and "hw.energy" in self._enabled
        )

    @property
    def drain_interval(self) -> float | None:
        """Seconds in which half of the fastest sample buffer is overwritten; None without buffers."""
        return min((_patience(ring) for ring in self._rings if ring.span), default=None)

    @property
    def all_failed(self) -> bool:
        """Whether all queries of the last scrape failed."""
        return self._poller.all_failed

    def scrape(self) -> Batch:
        """The current points. Raises `NvmlUnavailable` or `GpuLost`."""
        self._history.processes.start_scrape()
        measurements = self._poller.poll()
        self._explain_missing_memory()
        self._read_rings(list(self._rings))
        now = self._context.clock.time_ns()
        points = {series: self._point(series, measured, now) for series, measured in measurements.items()}
        self._latest |= {series: point.value for series, point in points.items() if series.metric in STATUS_METRICS}
        if self._is_board:
            points |= self._energy_points(points, now) | self._xid_points()
            points |= status_points(self._state()) | self._health_points(lost=self.all_failed)
        ends = self._encoder.ends([*self._history.processes.ended(points), *self._replaced(points)], now)
        points |= self._info
        return Batch.join([self._number_batch(points, now), ends, self._histogram_batch(now)])

    def _explain_missing_memory(self) -> None:
        """Logs once that the board has no memory of its own, as on GB10, whose GPU and CPU share theirs."""
        known = self._history.has_memory
        if known is not None or not self._is_board or "hw.gpu.memory.usage" not in self._enabled:
            return
        self._history.has_memory = any(query.name == MEMORY.name for query in self._poller.queries)
        if not self._history.has_memory:
            self._context.logger.warning(
                "GPU %d (%s) has no memory metrics: its driver reports no memory of its own, since the GPU shares the "
                "memory of the CPU; use system.memory.usage of the host receiver",
                self.identity.index,
                self.identity.uuid,
            )

    def drain(self) -> None:
        """Reads the sample buffers that cannot wait for another `drain_interval`: a read costs milliseconds on a board.

        Raises `NvmlUnavailable` or `GpuLost`.
        """
        next_drain = self._context.clock.monotonic() + (self.drain_interval or 0.0)
        self._read_rings([ring for ring in self._rings if ring.span and ring.read_at + _patience(ring) <= next_drain])

    def failed_batch(self) -> Batch:
        """The points of a board that is lost: its status, and its XIDs."""
        now = self._context.clock.time_ns()
        points = status_points("failed") | self._xid_points() | self._health_points(lost=True)
        return Batch.join([self._number_batch(points, now), self._encoder.ends(self._replaced(points), now)])

    def _replaced(self, points: SeriesPoints) -> list[NvmlSeries]:
        """The series whose value changed, and with it an attribute: another series is in `points`."""
        metrics = {point.metric for point in points} & _REPLACED & self._enabled
        new = {point for point in points if point.metric in metrics}
        replaced = [known for known in self._history.replaceable if known.metric in metrics and known not in new]
        self._history.replaceable = self._history.replaceable.difference(replaced) | new
        return replaced

    def _read_rings(self, rings: Iterable[SampleRing]) -> None:
        for ring in rings:
            self._poller.measure_duration("nvmlDeviceGetSamples", partial(self._read_ring, ring))

    def _read_ring(self, ring: SampleRing) -> None:
        ring.read_at = self._context.clock.monotonic()
        try:
            samples = ring.read(self._library.nvml, self._handle, self._context.clock.time_ns() // 1000)
        except self._library.nvml.NVMLError as error:
            if self._library.record_error("nvmlDeviceGetSamples", error.value):
                self._rings.remove(ring)
            return
        except (LookupError, ValueError) as error:  # an invalid answer
            self._library.on_error("nvmlDeviceGetSamples", type(error).__name__)
            return
        sampled = SAMPLED_SERIES[ring.kind]
        if sampled.metric in self._enabled:
            self._history.distributions[sampled].add([number for _, number in samples])
        if ring.kind == POWER:
            self._history.energy.add(samples)
        if ring.overwritten:
            self._context.drop(ring.overwritten, "sample_buffer_overrun")
            ring.overwritten = 0

    def _point(self, series: NvmlSeries, measured: Measurement, now: int) -> Point:
        if METRICS[series.metric].kind != "sum":
            return Point(measured.value)
        counter = self._history.counters.setdefault(series, DriverCounter())
        value = counter.update(measured.value, measured.wraps_at, now)
        return Point(value, counter.start_ns)

    def _energy_points(self, points: SeriesPoints, now: int) -> SeriesPoints:
        """Integrated power, if the board has no energy counter.

        The integral is over the board's power samples or, if it has none, over its power at each scrape.
        """
        if "hw.energy" not in self._enabled or _ENERGY in self._history.counters:
            return {}
        integral, start = self._history.energy, self._history.start_ns
        if any(ring.kind == POWER for ring in self._rings):
            return {_ENERGY_OF_SAMPLES: Point(integral.joules, start)}
        if _POWER not in points:
            return {}
        integral.add([(now // 1000, points[_POWER].value / MILLI)])
        return {_ENERGY_OF_READINGS: Point(integral.joules, start)}

    def _xid_points(self) -> SeriesPoints:
        points: SeriesPoints = {}
        counts = self._xids.of_gpu(self.identity.uuid)
        for xid, (count, last_ns) in counts.items():
            instance = {} if xid.gpu_instance is None else {semconv.GPU_MIG_GPU_INSTANCE: xid.gpu_instance}
            attributes = {semconv.GPU_XID_CODE: xid.code} | instance
            points[series(semconv.GPU_XID_ERRORS, 1.0, attributes)] = Point(count, self._history.start_ns)
            points[series(semconv.GPU_XID_LAST_TIME, 1.0, attributes)] = Point(last_ns / 1e9)
        newest = max(counts, key=lambda xid: counts[xid][1], default=Xid(0))
        points[series(semconv.GPU_XID_LAST)] = Point(newest.code)
        return points

    def _state(self) -> str:
        """The value of `hw.status`."""
        return "failed" if self.all_failed else state_of(self._latest, self._new_xids())

    def _health_points(self, *, lost: bool) -> SeriesPoints:
        if semconv.GPU_HEALTH not in self._enabled:
            return {}
        return health_points(self._latest, self._new_xids(), lost=lost)

    def _new_xids(self) -> list[int]:
        """The codes of XIDs since the driver was loaded."""
        counts = self._xids.of_gpu(self.identity.uuid)
        return [xid.code for xid, (count, _) in counts.items() if count > self._xids_before.get(xid, 0)]

    def _number_batch(self, points: SeriesPoints, now: int) -> Batch:
        sent = {series: point for series, point in points.items() if series.metric in self._enabled}
        return self._encoder.numbers(sent, now) if sent else Batch()

    def _histogram_batch(self, now: int) -> Batch:
        start, self._history.scraped_ns = self._history.scraped_ns, now
        counted: list[tuple[NvmlSeries, SampleHistogram | DurationHistogram]] = [*self._history.distributions.items()]
        if QUERY_DURATION in self._enabled:
            durations = self._poller.durations.items()
            counted += [(series(QUERY_DURATION, 1.0, {a.QUERY: query}), duration) for query, duration in durations]
        else:
            self._poller.durations.clear()
        return self._encoder.histograms(counted, start, now)


def _patience(ring: SampleRing) -> float:
    """Seconds in which half of the buffer is overwritten."""
    return max(ring.span / 2, MIN_DRAIN_INTERVAL)
