"""Pages: the newest value of every series, ready to be written."""

import math
import threading
from collections.abc import Callable, Iterable
from typing import Any

from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, MetricsData, ResourceMetrics, ScopeMetrics

from otel_zernel.exposition.family import Family, header
from otel_zernel.exposition.formats import Format
from otel_zernel.exposition.labels import sample
from otel_zernel.exposition.names import Naming
from otel_zernel.exposition.options import Options
from otel_zernel.exposition.origin import Origin, target_infos
from otel_zernel.exposition.series import Malformed, Series
from otel_zernel.exposition.stream import Stream, stream_key
from otel_zernel.otlp.staleness import has_no_value

_ALIASES = 4
"""Encodings remembered for one series. A sender that shuffles its attributes must not fill the memory."""
_INFO = "target_info"


def _ignore(*_: object) -> None:
    return


class Page:
    """The series of everything that came, until they expire. Safe to update and to render from several threads.

    What is not shown is counted by `drop(points, reason)`, and explained by `warn(template, *arguments)` where the user
    can do something about it:

    - `type_conflict`: another metric has this name, with another type or unit
    - `collision`: another series has these labels; the newer of the two is kept
    - `out_of_order`: older than what is shown, or a delta that overlaps it
    - `malformed`: negative counters, bounds that don't ascend, quantiles beyond 0 and 1 or of negative values
    - `no_temporality`: a sum or histogram that doesn't say if it is cumulative
    - `bad_name`: no character of the name is one of Prometheus's
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
        self._origins: dict[tuple[bytes, bytes, str], Origin] = {}
        self._families: dict[str, Family] = {}
        self._owners: dict[str, Family] = {}
        """Families by the names of their samples, which no other may use."""
        self._infos: list[str] | None = None
        """The labels of `target_info`; None if they may have changed."""
        self._oldest = math.inf
        """No series was seen, and no origin made, before this time."""

    def update(self, metrics: MetricsData, now: float) -> None:
        """Takes a batch; `now` is in s, of a clock that never goes backwards."""
        with self._lock:
            self._expire(now)
            for resource in metrics.resource_metrics:
                encoded = resource.resource.SerializeToString()
                for scope in resource.scope_metrics:
                    origin = self._origin(encoded, resource, scope, now)
                    for metric in scope.metrics:
                        self._take(origin, metric, now)

    def render(self, format_: Format, now: float) -> bytes:
        """The page, without what has expired `now`."""
        with self._lock:
            self._expire(now)
            lines = self._info_lines(format_)
            for family in self._families.values():
                lines += self._family_lines(family, format_)
        return "".join([*lines, "# EOF\n" if format_.openmetrics else ""]).encode()

    def expire(self, now: float) -> None:
        """Removes all that had no point for `metric_expiration`."""
        with self._lock:
            self._expire(now)

    def _origin(self, encoded: bytes, resource: ResourceMetrics, scope: ScopeMetrics, now: float) -> Origin:
        key = (encoded, scope.scope.SerializeToString(), scope.schema_url)
        origin = self._origins.get(key)
        if origin is None:
            origin = self._origins[key] = Origin(resource, scope, self._naming, self._options)
            self._oldest = min(self._oldest, now)
        return origin

    def _take(self, origin: Origin, metric: Metric, now: float) -> None:
        kind = metric.WhichOneof("data")
        if kind is None:
            return
        data = getattr(metric, kind)
        key = stream_key(metric, kind, data)
        stream = origin.streams.get(key)
        if stream is None:
            stream = origin.streams[key] = Stream.of(origin, metric, key, self._naming)
        if not stream.name:
            self._drop(len(data.data_points), "bad_name")
        elif stream.unspecified:
            self._drop(len(data.data_points), "no_temporality")
        elif family := self._family(stream):
            self._absorb(stream, family, data.data_points, now)
        else:
            self._drop(len(data.data_points), "type_conflict")
            self._warn("Prometheus family %s: another metric has this name, with another type or unit", stream.name)

    def _family(self, stream: Stream) -> Family | None:
        """The stream's family, made if it is new; None if the name is another's."""
        family = self._families.get(stream.name)
        if family is None or not family.series:
            return self._new_family(stream)
        if family.kind != stream.kind or (family.unit and stream.unit and family.unit != stream.unit):
            return None
        return family

    def _new_family(self, stream: Stream) -> Family | None:
        samples = tuple(stream.name + suffix for suffix in stream.series_type.suffixes)
        if _INFO in samples or any(name in self._owners and self._owners[name].series for name in samples):
            return None
        for name in samples:
            self._discard(self._owners.get(name))
        family = Family(stream.name, stream.kind, stream.unit, stream.help, samples)
        self._families[stream.name] = family
        self._owners.update(dict.fromkeys(samples, family))
        return family

    def _discard(self, family: Family | None) -> None:
        if family is not None:
            del self._families[family.name]
            for name in family.samples:
                del self._owners[name]

    def _absorb(self, stream: Stream, family: Family, points: Iterable[Any], now: float) -> None:
        """The hot path: a known series costs neither a look at its attributes nor a new string."""
        known, key_of, delta = stream.known, stream.key, stream.delta
        late = malformed = 0
        for point in points:
            if has_no_value(point):
                self._end(stream, family, point)
                continue
            key = key_of(point)
            series = known.get(key) or self._admit(stream, family, point, key)
            if series is None:
                continue
            time = point.time_unix_nano
            if 0 < time < series.earliest:
                late += 1
                continue
            try:
                series.absorb(point, delta)
            except Malformed:
                malformed += 1
                if series.seen == -math.inf:
                    self._remove(series)
                continue
            series.time, series.earliest, series.seen = time, time + delta, now
        if late:
            self._drop(late, "out_of_order")
        if malformed:
            self._drop(malformed, "malformed")

    def _end(self, stream: Stream, family: Family, point: Any) -> None:
        """Removes the series of a point that says there is no value any more."""
        series = family.series.get(stream.label_text(point.attributes))
        if series is not None and series.stream is stream:
            self._remove(series)

    def _admit(self, stream: Stream, family: Family, point: Any, key: bytes) -> Series | None:
        """The series of a point whose encoding is new; None if it must yield to one with the same labels."""
        labels = stream.label_text(point.attributes)
        identity = b"".join(sorted(pair.SerializeToString() for pair in point.attributes))
        series = family.series.get(labels)
        if series is not None and (series.stream is not stream or series.identity != identity):
            self._drop(1, "collision")
            self._warn_of_collision(family)
            if 0 < point.time_unix_nano < series.time:
                return None
            self._remove(series)
            series = None
        if series is None:
            series = family.series[labels] = stream.series_type(stream, labels, identity)
            self._infos = None
        if len(series.keys) < _ALIASES:
            series.keys.append(key)
            stream.known[key] = series
        return series

    def _warn_of_collision(self, family: Family) -> None:
        """Once for a family: where one series collides, all of its resource do, at every point."""
        if not family.has_collided:
            family.has_collided = True
            self._warn(
                "Prometheus family %s: two series have the same labels; "
                "name the resource attributes that tell them apart in resource_constant_labels",
                family.name,
            )

    def _remove(self, series: Series) -> None:
        del self._families[series.stream.name].series[series.labels]
        for key in series.keys:
            del series.stream.known[key]
        self._infos = None

    def _expire(self, now: float) -> None:
        horizon = now - self._options.metric_expiration
        if self._oldest >= horizon:
            return
        for family in list(self._families.values()):
            for series in [one for one in family.series.values() if one.seen < horizon]:
                self._remove(series)
            if not family.series:
                self._discard(family)
        self._forget_origins()
        self._oldest = min(
            (one.seen for family in self._families.values() for one in family.series.values()), default=now
        )

    def _forget_origins(self) -> None:
        """Drops the streams without a series, and the origins without a stream."""
        for key, origin in list(self._origins.items()):
            origin.streams = {name: stream for name, stream in origin.streams.items() if stream.known}
            if not origin.streams:
                del self._origins[key]

    def _info_lines(self, format_: Format) -> list[str]:
        if self._infos is None:
            live = [one for one in self._origins.values() if any(stream.known for stream in one.streams.values())]
            self._infos = target_infos(live, target_labels=self._options.target_labels)
        if not self._infos:
            return []
        name, type_ = ("target", "info") if format_.openmetrics else (_INFO, "gauge")
        lines = [f"{sample(_INFO, labels)}1\n" for labels in self._infos]
        return [header(name, type_, "What is known of a target besides job and instance.", "", format_), *lines]

    def _family_lines(self, family: Family, format_: Format) -> list[str]:
        if not family.series:
            return []
        shorter = self._owners.get(family.name.removesuffix("_total"))
        clashes = shorter is not None and shorter is not family and bool(shorter.series)
        lines = family.lines(format_, send_timestamps=self._options.send_timestamps)
        return [family.header(format_, clashes=clashes), *lines]
