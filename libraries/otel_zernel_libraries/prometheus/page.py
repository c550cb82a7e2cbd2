"""The page: the newest value of every series, ready to be rendered."""

import math
import threading
from collections.abc import Callable, Iterable
from typing import Any

from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, MetricsData, ResourceMetrics, ScopeMetrics

from otel_zernel.otlp.staleness import has_no_value
from otel_zernel_libraries.prometheus.families import TARGET_INFO, MetricFamilies, MetricFamily
from otel_zernel_libraries.prometheus.formats import Format
from otel_zernel_libraries.prometheus.formats.text import header
from otel_zernel_libraries.prometheus.labels import sample_prefix
from otel_zernel_libraries.prometheus.names import Naming
from otel_zernel_libraries.prometheus.options import Options
from otel_zernel_libraries.prometheus.origin import Origin, target_infos
from otel_zernel_libraries.prometheus.series import ExposedSeries, MalformedPoint
from otel_zernel_libraries.prometheus.stream import MetricStream, OriginStreams

_MAX_KEYS = 4
"""The most keys stored for one series. A sender that shuffles its attributes must not fill the memory."""
_CLOCK_STEP_NS = 1_000_000_000
"""A wall clock that loses more than this, in ns, was set back. Slewing (adjtime) is far slower."""
_PATIENCE = 60.0
"""Seconds in which every point of a series is late, after which its sender's clock must have been set back."""

_TARGET_HELP = "Resource attributes other than job and instance."


def _ignore(*_: object) -> None:
    return


class Page:
    """The series of all received points, until they expire. Several threads may update and render it.

    Points that cannot be shown are counted by `drop(points, reason)`. If the user can do something about it,
    `warn(template, *arguments)` explains it. The reasons:

    - `type_conflict`: another metric has this name, with another type or unit
    - `collision`: two series have the same labels; only the newer one is shown
    - `out_of_order`: the point is older than the shown one, or is a delta that overlaps it
    - `malformed`: a negative counter, bounds that do not ascend, a quantile outside 0 to 1, or a negative value of a
      quantile
    - `no_temporality`: a sum or histogram without a temporality
    - `bad_name`: the metric's name has no character that Prometheus allows
    - `too_many_series`: the page has `max_series` series, and the point belongs to a new one

    A wall clock that is set back must not freeze the page until the old time is reached again. A step of this machine
    is seen at once, from `time_ns`. A step of another machine is assumed after 60 s in which only late points came.
    """

    def __init__(
        self,
        options: Options | None = None,
        drop: Callable[[int, str], None] = _ignore,
        warn: Callable[..., None] = _ignore,
    ) -> None:
        self._options = options or Options()
        self._naming = Naming(self._options)
        self._drop = drop
        self._warn = warn
        self._lock = threading.Lock()
        self._origins: dict[tuple[bytes, bytes, str], OriginStreams] = {}
        self._families = MetricFamilies(self._options)
        self._target_infos: list[str] | None = None
        """The label texts of `target_info`. None if they may have changed."""
        self._oldest = math.inf
        """A lower bound of the times at which series were updated and origins created, in s."""
        self._clock_offset: int | None = None
        """The wall clock minus the monotonic clock, in ns."""
        self._series_count = 0
        self._is_full = False
        """Whether the last batch had a point for which there was no room."""

    def update(self, metrics: MetricsData, now: float, time_ns: int | None = None) -> None:
        """Adds the points of a batch. `now` is in s of a monotonic clock; `time_ns` is the wall clock."""
        with self._lock:
            self._expire(now)
            self._follow_clock(now, time_ns)
            for resource in metrics.resource_metrics:
                encoded = resource.resource.SerializeToString()
                for scope in resource.scope_metrics:
                    origin = self._origin(encoded, resource, scope, now)
                    for metric in scope.metrics:
                        self._add_metric(origin, metric, now)
            if self._is_full:
                self._is_full = False
                self._remove_empty_families()
                self._remove_empty_origins()

    def render(self, format_: Format, now: float) -> bytes:
        """The bytes of the page, without the series that are expired at `now`."""
        with self._lock:
            self._expire(now)
            if format_.protobuf:
                return self._messages()
            lines = self._target_info_lines(format_)
            for family in self._families.values():
                lines += self._family_lines(family, format_)
        return "".join([*lines, "# EOF\n" if format_.openmetrics else ""]).encode()

    def expire(self, now: float) -> None:
        """Removes the series without a new point for `metric_expiration` seconds."""
        with self._lock:
            self._expire(now)

    def _follow_clock(self, now: float, time_ns: int | None) -> None:
        """Accepts older points after this machine's wall clock was set back."""
        if time_ns is None:
            return
        offset = time_ns - round(now * 1e9)
        if self._clock_offset is not None and offset < self._clock_offset - _CLOCK_STEP_NS:
            for family in self._families.values():
                for series in family.series.values():
                    series.earliest = 0
        self._clock_offset = offset

    def _origin(self, encoded: bytes, resource: ResourceMetrics, scope: ScopeMetrics, now: float) -> OriginStreams:
        key = (encoded, scope.scope.SerializeToString(), scope.schema_url)
        origin = self._origins.get(key)
        if origin is None:
            origin = self._origins[key] = OriginStreams(Origin(resource, scope, self._naming, self._options))
            self._oldest = min(self._oldest, now)
        return origin

    def _add_metric(self, origin: OriginStreams, metric: Metric, now: float) -> None:
        kind = metric.WhichOneof("data")
        if kind is None:
            return
        data = getattr(metric, kind)
        stream = origin.stream_of(metric, kind, data, self._naming)
        if not stream.name:
            self._drop(len(data.data_points), "bad_name")
        elif stream.unspecified:
            self._drop(len(data.data_points), "no_temporality")
        elif family := self._families.family_of(stream):
            self._add_points(stream, family, data.data_points, now)
        else:
            self._drop(len(data.data_points), "type_conflict")
            self._warn(
                "Prometheus metric %s: dropped points of a metric with the same name but another type or unit; "
                "rename one of the two metrics",
                stream.name,
            )

    def _add_points(self, stream: MetricStream, family: MetricFamily, points: Iterable[Any], now: float) -> None:
        """The hot path. For a known series, no attribute is parsed and no text is made."""
        known_series, key_of, delta = stream.series, stream.key, stream.delta
        late = malformed = 0
        for point in points:
            if has_no_value(point):
                self._end_series(stream, family, point)
                continue
            key = key_of(point)
            series = known_series.get(key) or self._find_or_add_series(stream, family, point, key)
            if series is None:
                continue
            time = point.time_unix_nano
            if 0 < time < series.earliest and (delta or not series.is_set_back(now, _PATIENCE)):
                late += 1
                continue
            try:
                series.update(point, delta)
            except MalformedPoint:
                malformed += 1
                if series.updated == -math.inf:
                    self._remove(series)
                continue
            series.time, series.earliest, series.updated = time, time + 1 if delta else time, now
        if late:
            self._drop(late, "out_of_order")
        if malformed:
            self._drop(malformed, "malformed")

    def _end_series(self, stream: MetricStream, family: MetricFamily, point: Any) -> None:
        """Removes the series of a staleness point."""
        series = family.series.get(stream.label_text(point.attributes))
        if series is not None and series.siblings is stream.series:
            self._remove(series)

    def _find_or_add_series(
        self, stream: MetricStream, family: MetricFamily, point: Any, key: bytes
    ) -> ExposedSeries | None:
        """The series of a point whose key is new. None if a newer series has the same labels."""
        labels = stream.label_text(point.attributes)
        identity = b"".join(sorted(pair.SerializeToString() for pair in point.attributes))
        series = family.series.get(labels)
        if series is not None and (series.siblings is not stream.series or series.identity != identity):
            self._drop(1, "collision")
            self._warn_of_collision(family)
            if 0 < point.time_unix_nano < series.time:
                return None
            self._remove(series)
            series = None
        if series is None:
            if self._series_count >= self._options.max_series:
                self._refuse_series()
                return None
            series = family.add_series(stream, labels, identity)
            self._series_count += 1
            self._target_infos = None
        if len(series.keys) < _MAX_KEYS:
            series.keys.append(key)
            stream.series[key] = series
        return series

    def _refuse_series(self) -> None:
        if not self._is_full:
            self._warn(
                "The Prometheus page has max_series (%d) series; dropped points of further ones; "
                "remove attributes with many values, or raise max_series",
                self._options.max_series,
            )
        self._is_full = True
        self._drop(1, "too_many_series")

    def _warn_of_collision(self, family: MetricFamily) -> None:
        """Logs one warning per family: usually all series of a resource collide, at every point."""
        if not family.collision_logged:
            family.collision_logged = True
            self._warn(
                "Prometheus metric %s: two series have the same labels, and only the newer one is shown; "
                "add a resource attribute in which they differ to resource_constant_labels",
                family.name,
            )

    def _remove(self, series: ExposedSeries) -> None:
        del self._families.by_name[series.name].series[series.labels]
        for key in series.keys:
            del series.siblings[key]
        self._series_count -= 1
        self._target_infos = None

    def _expire(self, now: float) -> None:
        horizon = now - self._options.metric_expiration
        if self._oldest >= horizon:
            return
        for family in self._families.values():
            for series in [series for series in family.series.values() if series.updated < horizon]:
                self._remove(series)
        self._remove_empty_families()
        self._remove_empty_origins()
        times = (series.updated for family in self._families.values() for series in family.series.values())
        self._oldest = min(times, default=now)

    def _remove_empty_families(self) -> None:
        for family in [family for family in self._families.values() if not family.series]:
            self._families.remove(family)

    def _remove_empty_origins(self) -> None:
        """Removes the streams without a series, and the origins without a stream."""
        for key, origin in list(self._origins.items()):
            origin.remove_empty_streams()
            if not origin.streams:
                del self._origins[key]

    def _messages(self) -> bytes:
        from otel_zernel_libraries.prometheus.formats.protobuf import info_message  # only if a scraper requests it

        infos = self._target_info_labels()
        options = self._options
        return b"".join(
            [
                info_message(TARGET_INFO, _TARGET_HELP, infos) if infos else b"",
                *(
                    family.messages(send_timestamps=options.send_timestamps, native=options.native_histograms)
                    for family in self._families.values()
                    if family.series
                ),
            ]
        )

    def _target_info_labels(self) -> list[str]:
        if self._target_infos is None:
            live = [origin.origin for origin in self._origins.values() if origin.has_series]
            self._target_infos = target_infos(live, target_labels=self._options.target_labels)
        return self._target_infos

    def _target_info_lines(self, format_: Format) -> list[str]:
        infos = self._target_info_labels()
        if not infos:
            return []
        name, type_ = ("target", "info") if format_.openmetrics else (TARGET_INFO, "gauge")
        lines = [f"{sample_prefix(TARGET_INFO, labels)}1\n" for labels in infos]
        return [header(name, type_, _TARGET_HELP, "", format_), *lines]

    def _family_lines(self, family: MetricFamily, format_: Format) -> list[str]:
        if not family.series:
            return []
        clashes = self._families.has_clash(family)
        return family.text(format_, clashes=clashes, send_timestamps=self._options.send_timestamps)
