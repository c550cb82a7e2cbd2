"""One device, a board or a MIG instance: everything a scrape of it takes. Used by one thread at a time."""

from collections.abc import Iterator
from functools import partial

from otel_zernel.batch import Batch
from otel_zernel.component import Context
from otel_zernel_receivers.nvml.config import NvmlConfig
from otel_zernel_receivers.nvml.driver.events import Xid, Xids
from otel_zernel_receivers.nvml.driver.library import Handle, Library
from otel_zernel_receivers.nvml.gpus.counters import Counter
from otel_zernel_receivers.nvml.gpus.history import History
from otel_zernel_receivers.nvml.gpus.identity import Identity
from otel_zernel_receivers.nvml.points import metrics as m
from otel_zernel_receivers.nvml.points.encoding import Encoder, Point
from otel_zernel_receivers.nvml.points.histograms import DurationHistogram, SampleHistogram
from otel_zernel_receivers.nvml.points.metrics import METRICS
from otel_zernel_receivers.nvml.points.series import MILLI, Stream, stream
from otel_zernel_receivers.nvml.readings.board import BOARD, INSTANCE
from otel_zernel_receivers.nvml.readings.fields import FIELDS
from otel_zernel_receivers.nvml.readings.polling import Asked, Questions, Reading, questions
from otel_zernel_receivers.nvml.readings.processes import RUNNING, VERSIONS
from otel_zernel_receivers.nvml.readings.samples import POWER, STREAMS, Ring
from otel_zernel_receivers.nvml.readings.status import STATES, WATCHED, state_of

Points = dict[Stream, Point]

SHORTEST_DRAIN = 0.5
"""Seconds. Buffers that go round faster lose samples, which are counted."""
_ENERGY = stream("hw.energy", MILLI)
_ENERGY_OF_SAMPLES = stream("hw.energy", 1.0, {m.ENERGY_SOURCE: "power_samples"})
_ENERGY_OF_READINGS = stream("hw.energy", 1.0, {m.ENERGY_SOURCE: "power_readings"})
_POWER = stream("hw.power", MILLI)
_DURATION = "zernel.nvml.query.duration"


class Device:
    """A board or a MIG instance, while its driver runs."""

    def __init__(
        self,
        library: Library,
        handle: Handle,
        identity: Identity,
        history: History,
        xids: Xids,
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
        self._encoder = Encoder(identity.resource, identity.uuid)
        self._xids_before = {xid: count for xid, (count, _) in xids.of(identity.uuid).items()}
        self._latest: dict[Stream, float] = {}
        clock = context.clock
        self._questions = Questions(library, handle, config.slow_query, clock.monotonic)
        self._questions.asked = list(self._to_ask(config.processes.enabled))
        self._rings = [ring for ring in history.rings.values() if self._is_board and self._wants(ring)]

    def _to_ask(self, processes: bool) -> Iterator[Asked]:
        wanted = self._enabled
        if "hw.status" in wanted:
            wanted |= WATCHED
        if "hw.energy" in wanted:
            wanted |= {"hw.power"}
        board = self._is_board
        yield from questions(BOARD if board else INSTANCE, FIELDS if board else (), wanted, self._library)
        if processes:
            yield from self._about_processes()

    def _about_processes(self) -> Iterator[Asked]:
        known = self._history.processes
        for type_, function in RUNNING.items():
            yield Asked(function, [partial(known.running, type_, function + version) for version in VERSIONS])
        if self._is_board and "zernel.gpu.process.utilization" in self._enabled:
            yield Asked("nvmlDeviceGetProcessUtilization", [known.utilization])

    def _wants(self, ring: Ring) -> bool:
        return STREAMS[ring.kind].metric in self._enabled or (ring.kind == POWER and "hw.energy" in self._enabled)

    @property
    def drain_interval(self) -> float | None:
        """Seconds after which the fastest sample buffer has gone half round; None if there are none."""
        spans = [ring.span for ring in self._rings if ring.span]
        return max(min(spans) / 2, SHORTEST_DRAIN) if spans else None

    @property
    def silent(self) -> bool:
        """Whether every query fails."""
        return self._questions.silent

    def scrape(self) -> Batch:
        """The points of now. Raises `Unavailable` or `Lost`."""
        self._history.processes.begin()
        readings = self._questions.ask()
        self.drain()
        now = self._context.clock.time_ns()
        points = {one: self._point(one, reading, now) for one, reading in readings.items()}
        self._latest |= {one: point.value for one, point in points.items() if one.metric in WATCHED}
        if self._is_board:
            points |= self._energy(points, now) | self._xid_points() | _status_points(self._state())
        return Batch.join([self._numbers(points, now), self._histograms(now)])

    def drain(self) -> None:
        """Reads the sample buffers. Raises `Unavailable` or `Lost`."""
        for ring in list(self._rings):
            self._questions.timed("nvmlDeviceGetSamples", partial(self._read, ring))

    def failed(self) -> Batch:
        """What is left to say of a board that is lost."""
        return self._numbers(_status_points("failed") | self._xid_points(), self._context.clock.time_ns())

    def _read(self, ring: Ring) -> None:
        try:
            samples = ring.read(self._library.nvml, self._handle, self._context.clock.time_ns() // 1000)
        except self._library.nvml.NVMLError as error:
            if self._library.unsupported("nvmlDeviceGetSamples", error.value):
                self._rings.remove(ring)
            return
        except (LookupError, ValueError) as error:  # an answer that makes no sense
            self._library.failed("nvmlDeviceGetSamples", type(error).__name__)
            return
        one = STREAMS[ring.kind]
        if one.metric in self._enabled:
            self._history.distributions[one].add([number for _, number in samples])
        if ring.kind == POWER:
            self._history.energy.add(samples)
        if ring.missed:
            self._context.drop(ring.missed, "sample_buffer_overrun")
            ring.missed = 0

    def _point(self, one: Stream, reading: Reading, now: int) -> Point:
        if METRICS[one.metric].kind != "sum":
            return Point(reading.value)
        counter = self._history.counters.setdefault(one, Counter())
        value = counter.read(reading.value, reading.wraps_at, now)
        return Point(value, counter.start_ns)

    def _energy(self, points: Points, now: int) -> Points:
        """Power summed up, where the board has no counter: its samples, or our readings where it lacks those, too."""
        if "hw.energy" not in self._enabled or _ENERGY in self._history.counters:
            return {}
        integral, start = self._history.energy, self._history.start_ns
        if any(ring.kind == POWER for ring in self._rings):
            return {_ENERGY_OF_SAMPLES: Point(integral.joules, start)}
        if _POWER not in points:
            return {}
        integral.add([(now // 1000, points[_POWER].value / MILLI)])
        return {_ENERGY_OF_READINGS: Point(integral.joules, start)}

    def _xid_points(self) -> Points:
        points: Points = {}
        seen = self._xids.of(self.identity.uuid)
        for xid, (count, last_ns) in seen.items():
            about = {m.XID: xid.code} | ({} if xid.gpu_instance is None else {m.GPU_INSTANCE: xid.gpu_instance})
            points[stream("zernel.gpu.xid.errors", 1.0, about)] = Point(count, self._history.start_ns)
            points[stream("zernel.gpu.xid.last_time", 1.0, about)] = Point(last_ns / 1e9)
        newest = max(seen, key=lambda xid: seen[xid][1], default=Xid(0))
        points[stream("zernel.gpu.xid.last")] = Point(newest.code)
        return points

    def _state(self) -> str:
        """XIDs of before the driver was loaded say nothing about a GPU that answers again."""
        seen, before = self._xids.of(self.identity.uuid), self._xids_before
        if self.silent:
            return "failed"
        return state_of(self._latest, [xid.code for xid, (count, _) in seen.items() if count > before.get(xid, 0)])

    def _numbers(self, points: Points, now: int) -> Batch:
        sent = {one: point for one, point in points.items() if one.metric in self._enabled}
        return self._encoder.numbers(sent, now) if sent else Batch()

    def _histograms(self, now: int) -> Batch:
        began, self._history.scraped_ns = self._history.scraped_ns, now
        counted: list[tuple[Stream, SampleHistogram | DurationHistogram]] = [*self._history.distributions.items()]
        if _DURATION in self._enabled:
            durations = self._questions.durations.items()
            counted += [(stream(_DURATION, 1.0, {m.QUERY: query}), one) for query, one in durations]
        else:
            self._questions.durations.clear()
        return self._encoder.histograms(counted, began, now)


def _status_points(state: str) -> Points:
    return {stream("hw.status", 1.0, {m.STATE: one}): Point(float(one == state)) for one in STATES}
