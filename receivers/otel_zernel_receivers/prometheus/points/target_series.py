"""The series of one target: from each of its pages to OTLP, with the metrics about the scrape, such as `up`."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from otel_zernel.batch import Batch
from otel_zernel.otlp.points import AttributeValue, Descriptor, MetricKind
from otel_zernel.otlp.staleness import encode_staleness
from otel_zernel.protobuf import delimited
from otel_zernel.runtime.garbage import collection_deferred
from otel_zernel_receivers.prometheus.declared import EXTRA, REPORTED
from otel_zernel_receivers.prometheus.pages.page import PageFamily, SampleKey, ScrapedPage
from otel_zernel_receivers.prometheus.points.encoding import (
    encode_head_metric,
    encode_point_pairs,
    encode_scope_fields,
    encode_section,
    encode_target_resource,
)
from otel_zernel_receivers.prometheus.points.layout import EncodedPoints, PageLayout, encode_ends
from otel_zernel_receivers.prometheus.points.numbers import NumberTemplate
from otel_zernel_receivers.prometheus.points.resolving import OWN_SCOPE, OverLimit, SampleRules
from otel_zernel_receivers.prometheus.points.sample import (
    MetricHead,
    PageSample,
    Pairs,
    PointKey,
    SampleResource,
    SampleScope,
)
from otel_zernel_receivers.prometheus.points.slots import PointSlot

_KIND: MetricKind = "gauge"


class ScrapeReport:
    """Encodes the report of one target."""

    def __init__(self, resource: SampleResource, attributes: Pairs, *, extra: bool) -> None:
        about = {**REPORTED, **EXTRA} if extra else REPORTED
        heads = [
            MetricHead(Descriptor(fact.name, fact.unit, _KIND, fact.description), "gauge") for fact in about.values()
        ]
        self.origin = (resource, OWN_SCOPE)
        self.names = tuple(about)
        self._heads = heads
        self._attributes = encode_point_pairs(_KIND, attributes)
        self._template = NumberTemplate([[PointKey(*self.origin, head, self._attributes) for head in heads]])

    def encode(self, values: Mapping[str, float], time_ns: int) -> bytes:
        """The metrics. `values` by name."""
        numbers = np.array([values[name] for name in self.names], np.float64)
        return self._template.encode(numbers, time_ns, 0)[0]

    def ends(self, time_ns: int) -> bytes:
        """The staleness points of the report."""
        point = delimited(1, self._attributes + encode_staleness(_KIND, time_ns))
        return b"".join(encode_head_metric(head, point) for head in self._heads)


_PIECE = 10_000
"""Keys that are compared at once."""


@dataclass(frozen=True, slots=True)
class PageCounts:
    """The samples of one page."""

    scraped: int = 0
    kept: int = 0
    """After relabelling."""
    added: int = 0
    """New series among them."""
    malformed: int = 0
    duplicates: int = 0


@dataclass(slots=True)
class _Known:
    """The samples of the last page."""

    keys: list[SampleKey]
    families: Mapping[str, PageFamily]
    samples: dict[SampleKey, PageSample | None]
    """None for samples that relabelling drops."""
    layout: PageLayout
    counts: PageCounts


class TargetSeries:
    """Turns the pages of one target into OTLP. Used by one thread at a time."""

    def __init__(
        self,
        rules: SampleRules,
        about: Mapping[str, AttributeValue],
        *,
        extra_report: bool = False,
        track_timed: bool = False,
    ) -> None:
        """`about` are the attributes of the target's resource beyond job and instance.

        `track_timed`: whether series with times of their own end when they vanish.
        """
        self._rules = rules
        self._about: Pairs = tuple(about.items())
        self._track_timed = track_timed
        labels = {name: value for name, value in rules.target_labels.items() if name not in ("job", "instance")}
        self.report = ScrapeReport(rules.resource, tuple(sorted(labels.items())), extra=extra_report)
        self._known: _Known | None = None
        self._percent: set[PointKey] = set()
        self._alive = False
        """Whether the series of the last page have not ended."""
        self._timed: set[int] = set()
        """Positions of samples that had times of their own."""
        self._last_ns = 0
        self._infos: dict[tuple[str, str], Pairs] = {}
        self._scope_infos: dict[tuple[str, str], Pairs] = {}
        self._resources: dict[SampleResource, bytes] = {}

    @property
    def samples(self) -> Mapping[SampleKey, PageSample | None]:
        """The samples of the last page."""
        return self._known.samples if self._known else {}

    def add(self, page: ScrapedPage, time_ns: int) -> tuple[EncodedPoints, PageCounts]:
        """The points of a page, and the ends of series that are no longer there. Raises `OverLimit`."""
        page = page.without_blanks()
        known, ended = self._known, EncodedPoints({}, 0, 0)
        is_same = (
            known is not None
            and page.families is known.families
            and _equal(page.keys, known.keys)
            and page.exemplars.keys() <= known.layout.with_exemplars
        )
        if known is None or not is_same:
            before = self._known
            with collection_deferred():  # a new page of 10,000 series makes 100,000 objects, which live long
                known = self._renew(page, time_ns)
            if before and self._alive:
                ended = self._ends_of(before, known.layout.points, time_ns)
            added = known.counts.added
        else:
            added = 0
        points = known.layout.encode(page, time_ns, self._last_ns or time_ns, self._percent)
        self._alive = True
        self._last_ns = time_ns
        self._timed = {*page.times_ns}
        counts = known.counts
        malformed = counts.malformed + page.malformed + points.malformed
        counts = PageCounts(counts.scraped, counts.kept, added, malformed, counts.duplicates)
        return _joined(points, ended), counts

    def end(self, time_ns: int) -> EncodedPoints:
        """The ends of all series, once."""
        if not self._known or not self._alive:
            return EncodedPoints({}, 0, 0)
        self._alive = False
        return self._ends_of(self._known, {}, time_ns)

    def batch(self, points: EncodedPoints, values: Mapping[str, float] | None, time_ns: int) -> Batch:
        """The points and the report of a scrape. The report ends if `values` is None."""
        report = self.report.ends(time_ns) if values is None else self.report.encode(values, time_ns)
        sections = {**points.sections}
        sections[self.report.origin] = [*sections.get(self.report.origin, ()), report]
        encoded = b"".join(
            encode_section(self._resource(resource), self._scope(scope), metrics)
            for (resource, scope), metrics in sections.items()
        )
        return Batch.encoded("metrics", encoded, points.count + len(self.report.names))

    def _renew(self, page: ScrapedPage, time_ns: int) -> _Known:
        """Reads the samples that are new, and computes the layout."""
        former = self._known
        cached = former.samples if former and former.families is page.families else {}
        samples, malformed = self._resolved(page, cached)
        resolved = [samples.get(key) for key in page.keys]
        kept = sum(sample is not None for sample in resolved)
        state = former.layout.state() if former else {}
        exemplars = {*page.exemplars, *(former.layout.with_exemplars if former and former.keys == page.keys else ())}
        layout = PageLayout(resolved, exemplars, self._percent, state, time_ns)
        old = former.samples if former else {}
        added = sum(sample is not None and key not in old for key, sample in samples.items())
        malformed += layout.incomplete
        counts = PageCounts(len(page.keys), kept, added, malformed, layout.duplicates)
        self._read_infos(filter(None, resolved))
        self._percent &= layout.points.keys()
        self._known = _Known(page.keys, page.families, samples, layout, counts)
        return self._known

    def _resolved(
        self, page: ScrapedPage, cached: Mapping[SampleKey, PageSample | None]
    ) -> tuple[dict[SampleKey, PageSample | None], int]:
        """The samples, and the number of those that cannot be read."""
        samples: dict[SampleKey, PageSample | None] = {}
        malformed = kept = 0
        limit = self._rules.limits.sample_limit or len(page.keys)
        for key in page.keys:
            if key in cached:
                samples[key] = cached[key]
            elif key not in samples:
                try:
                    samples[key] = self._rules.resolve(key, page.families)
                except ValueError:
                    malformed += 1
            kept += samples.get(key) is not None
            if kept > limit:
                raise OverLimit(f"the page has more samples than sample_limit: {limit:,}")
        return samples, malformed

    def _read_infos(self, samples: Iterable[PageSample]) -> None:
        self._resources.clear()
        self._infos.clear()
        self._scope_infos.clear()
        for sample in samples:
            if sample.labels is None:
                continue
            resource, scope = sample.point.resource, sample.point.scope
            own = tuple(pair for pair in sample.labels.items() if self._rules.target_labels.get(pair[0]) != pair[1])
            if sample.role == "target_info":
                self._infos[resource.job, resource.instance] = own
            else:
                self._scope_infos[scope.name, scope.version] = own

    def _resource(self, resource: SampleResource) -> bytes:
        encoded = self._resources.get(resource)
        if encoded is None:
            pairs = [("service.name", resource.job), ("service.instance.id", resource.instance)]
            attributes: dict[str, AttributeValue] = {name: value for name, value in pairs if value}
            if (resource.job, resource.instance) == self._rules.resource[:2]:
                attributes |= dict(self._about)
            attributes |= dict(self._infos.get((resource.job, resource.instance), ()))
            encoded = encode_target_resource(tuple((attributes | dict(resource.attributes)).items()))
            self._resources[resource] = encoded
        return encoded

    def _scope(self, scope: SampleScope) -> bytes:
        return encode_scope_fields(scope, self._scope_infos.get((scope.name, scope.version), ()))

    def _ends_of(self, known: _Known, still: Mapping[PointKey, PointSlot], time_ns: int) -> EncodedPoints:
        """The ends of series, but for those with times of their own, as in Prometheus."""
        gone = [slot for point, slot in known.layout.points.items() if point not in still]
        if self._timed and not self._track_timed:
            gone = [slot for slot in gone if not self._timed.intersection(slot.positions())]
        return encode_ends(gone, time_ns)


def _equal(left: list[SampleKey], right: list[SampleKey]) -> bool:
    """As `==`, which would hold the interpreter's lock for 30 ms with 500,000 keys."""
    pieces = range(0, len(left), _PIECE)
    return len(left) == len(right) and all(left[at : at + _PIECE] == right[at : at + _PIECE] for at in pieces)


def _joined(points: EncodedPoints, ended: EncodedPoints) -> EncodedPoints:
    if not ended.count:
        return points
    sections = {origin: [*metrics] for origin, metrics in points.sections.items()}
    for origin, metrics in ended.sections.items():
        sections.setdefault(origin, []).extend(metrics)
    return EncodedPoints(sections, points.count + ended.count, points.malformed)
