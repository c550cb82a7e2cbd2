"""Finds the meaning of samples: labels, relabelling, limits, the type and the unit of the metric.

The units are those of https://opentelemetry.io/docs/specs/otel/compatibility/prometheus_and_openmetrics/ in UCUM.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from otel_zernel import __version__
from otel_zernel.errors import ZernelError
from otel_zernel.otlp.points import Descriptor, MetricKind
from otel_zernel.text import quoted
from otel_zernel_receivers.prometheus.config.scrape import ScrapeLimits
from otel_zernel_receivers.prometheus.pages.labels import read_labels
from otel_zernel_receivers.prometheus.pages.page import NAME, Labels, MetricType, PageFamily, SampleKey
from otel_zernel_receivers.prometheus.pages.protobuf import read_label_pairs
from otel_zernel_receivers.prometheus.points.encoding import encode_point_pairs
from otel_zernel_receivers.prometheus.points.sample import (
    MetricHead,
    PageSample,
    Pairs,
    PointKey,
    SampleResource,
    SampleRole,
    SampleScope,
)
from otel_zernel_receivers.prometheus.relabelling.renaming import Renamed, Renames
from otel_zernel_receivers.prometheus.relabelling.rules import RelabelRule, relabel

_UCUM: Final[Mapping[str, str]] = {
    "days": "d",
    "hours": "h",
    "minutes": "min",
    "seconds": "s",
    "milliseconds": "ms",
    "microseconds": "us",
    "nanoseconds": "ns",
    "bytes": "By",
    "kibibytes": "KiBy",
    "mebibytes": "MiBy",
    "gibibytes": "GiBy",
    "tebibytes": "TiBy",
    "kilobytes": "kBy",
    "megabytes": "MBy",
    "gigabytes": "GBy",
    "terabytes": "TBy",
    "meters": "m",
    "volts": "V",
    "amperes": "A",
    "joules": "J",
    "watts": "W",
    "grams": "g",
    "celsius": "Cel",
    "hertz": "Hz",
    "percent": "%",
    "ratio": "1",
}
_PER: Final[Mapping[str, str]] = {
    "second": "s",
    "minute": "min",
    "hour": "h",
    "day": "d",
    "week": "w",
    "month": "mo",
    "year": "y",
}


def ucum(unit: str) -> str:
    """`bytes_per_second` is `By/s`. Unknown units stay as they are."""
    main, slash, per = unit.partition("_per_")
    return f"{_UCUM.get(main, main)}/{_PER.get(per, per)}" if slash else _UCUM.get(unit, unit)


def without_suffixes(name: str, unit: str, *, is_counter: bool) -> str:
    """The name without `_total` and its unit: `http_request_duration_seconds_total` is `http_request_duration`."""
    trimmed = name.removesuffix("_total") if is_counter else name
    trimmed = trimmed.removesuffix(f"_{unit}") if unit else trimmed
    return trimmed or name


OWN_SCOPE = SampleScope("otel_zernel_receivers.prometheus", __version__)
"""The scope of samples without labels `otel_scope_*`."""
_SCOPE = "otel_scope_"
_UNKNOWN = PageFamily()
_KINDS: Mapping[MetricType, MetricKind] = {
    "counter": "sum",
    "gauge": "gauge",
    "unknown": "gauge",
    "info": "up_down",
    "stateset": "up_down",
}
"""The kinds of single numbers. Samples of other types that fit no point are gauges."""
_SUFFIXES: Sequence[tuple[str, frozenset[MetricType], SampleRole]] = (
    ("_bucket", frozenset({"histogram"}), "bucket"),
    ("_sum", frozenset({"histogram", "summary"}), "sum"),
    ("_count", frozenset({"histogram", "summary"}), "count"),
    ("_created", frozenset({"histogram", "summary", "counter"}), "created"),
    ("_total", frozenset({"counter", "unknown"}), "number"),
    ("_info", frozenset({"info"}), "number"),
)
_EXACT: Mapping[MetricType, SampleRole] = {"summary": "quantile", "histogram": "native"}
_BOUND_LABELS: Mapping[SampleRole, str] = {"bucket": "le", "quantile": "quantile"}


class OverLimit(ZernelError):
    """A page is beyond a configured limit, and is not used. The message is one sentence."""


@dataclass(frozen=True, slots=True)
class SampleRules:
    """The settings of a target for its samples."""

    target_labels: Labels
    """With `job` and `instance`."""
    renames: Renames
    limits: ScrapeLimits
    rules: Sequence[RelabelRule] = ()
    honor_labels: bool = False
    trim_suffixes: bool = False

    @property
    def resource(self) -> SampleResource:
        """The target itself."""
        return SampleResource(self.target_labels.get("job", ""), self.target_labels.get("instance", ""))

    def resolve(self, key: SampleKey, families: Mapping[str, PageFamily]) -> PageSample | None:
        """The meaning of a sample; None if relabelling drops it.

        Raises `ValueError` if its labels cannot be read, and `OverLimit`.
        """
        read = read_labels(key) if isinstance(key, bytes) else read_label_pairs(key)
        original = read[NAME]
        labels = relabel(self._with_target(read), self.rules)
        if labels is None:
            return None
        if NAME not in labels:
            raise ValueError("relabelling has removed the name")
        self._check(labels)
        family_name, role = _family_of(original, families)
        family = families.get(family_name, _UNKNOWN)
        is_text = isinstance(key, bytes)
        if role == "native" and is_text:  # only protobuf has native histograms
            role = "number"
        # In OpenMetrics, the creation time of the sample a_total is a_created.
        total = "_total" if is_text and role == "created" and family.type == "counter" else ""
        return self._sample(labels, original, family_name, family, role, total)

    def _with_target(self, labels: Labels) -> Labels:
        """The labels of the page and of the target. A conflict keeps one of them, as `honor_labels` says."""
        if self.honor_labels:
            return self.target_labels | labels
        result = {name: value for name, value in labels.items() if value}
        for name in self.target_labels.keys() & result.keys():
            exported = f"exported_{name}"
            while exported in result or exported in self.target_labels:
                exported = f"exported_{exported}"
            result[exported] = result.pop(name)
        return result | self.target_labels

    def _check(self, labels: Labels) -> None:
        limits = self.limits
        if not (limits.label_limit or limits.label_name_length_limit or limits.label_value_length_limit):
            return
        name = quoted(labels[NAME])
        if limits.label_limit and len(labels) > limits.label_limit:
            raise OverLimit(f"{name} has {len(labels)} labels, over label_limit: {limits.label_limit}")
        for label, value in labels.items():
            if limits.label_name_length_limit and len(label) > limits.label_name_length_limit:
                raise OverLimit(
                    f"{name} has a label name of {len(label)} characters,"
                    f" over label_name_length_limit: {limits.label_name_length_limit}"
                )
            if limits.label_value_length_limit and len(value) > limits.label_value_length_limit:
                raise OverLimit(
                    f"{name} has a label value of {len(value)} characters,"
                    f" over label_value_length_limit: {limits.label_value_length_limit}"
                )

    def _sample(
        self, labels: Labels, original: str, family_name: str, family: PageFamily, role: SampleRole, total: str
    ) -> PageSample:
        name = labels.pop(NAME)
        resource = SampleResource(labels.pop("job", ""), labels.pop("instance", ""))
        if original in ("target_info", "otel_scope_info"):
            role = "target_info" if original == "target_info" else "scope_info"
            return PageSample(role, _point(resource, labels, "", "gauge", family), labels=labels)
        bound = _pop_bound(labels, role)
        suffix = original.removeprefix(family_name) if role not in ("number", "native", "quantile") else ""
        if bound is None or (suffix and not name.endswith(suffix)):
            role, suffix, bound = "number", "", 0.0
        name = name.removesuffix(suffix) + total if suffix else name
        kind: MetricKind = _kind(role, family.type)
        return self._named(PartOfPoint(role, bound, name, kind), family_name, resource, labels, family)

    def _named(
        self, part: "PartOfPoint", family_name: str, resource: SampleResource, labels: Labels, family: PageFamily
    ) -> PageSample:
        renamed = self.renames.of(family_name, part.name)
        if renamed:
            return _renamed(part, renamed, resource, labels, family)
        name = part.name
        if self.trim_suffixes:
            name = without_suffixes(name, family.unit, is_counter=family.type == "counter")
        return PageSample(part.role, _point(resource, labels, name, part.kind, family), part.bound)


@dataclass(frozen=True, slots=True)
class PartOfPoint:
    """A sample's part in the point of a metric."""

    role: SampleRole
    bound: float
    name: str
    """The name of the metric."""
    kind: MetricKind


def _family_of(name: str, families: Mapping[str, PageFamily]) -> tuple[str, SampleRole]:
    """The family of a sample, by its name, and the sample's part in a point."""
    if family := families.get(name):
        return name, _EXACT.get(family.type, "number")
    for suffix, types, role in _SUFFIXES:
        if name.endswith(suffix):
            family = families.get(base := name.removesuffix(suffix))
            if family and family.type in types:
                return base, role
    return name, "number"


def _kind(role: SampleRole, type_: MetricType) -> MetricKind:
    if role == "native":
        return "exponential_histogram"
    if role in ("bucket", "sum", "count", "quantile", "created") and type_ in ("histogram", "summary"):
        return "histogram" if type_ == "histogram" else "summary"
    return _KINDS.get(type_, "gauge")


def _pop_bound(labels: Labels, role: SampleRole) -> float | None:
    """The bound of a bucket or the quantile, without its label; 0 for other roles. None if it is no number."""
    name = _BOUND_LABELS.get(role)
    if name is None:
        return 0.0
    try:
        bound = float(labels[name])
    except (KeyError, ValueError):
        return None
    del labels[name]
    return bound


def _point(
    resource: SampleResource,
    labels: Labels,
    name: str,
    kind: MetricKind,
    family: PageFamily,
    unit: str | None = None,
    further: Pairs = (),
) -> PointKey:
    """The point with these labels, and `further` attributes before them. Removes the labels of the scope."""
    scope = OWN_SCOPE
    if any(label.startswith(_SCOPE) for label in labels):
        scope = _pop_scope(labels)
    head = _head(name, ucum(family.unit) if unit is None else unit, kind, family.help, family.type)
    return PointKey(resource, scope, head, encode_point_pairs(kind, (*further, *sorted(labels.items()))))


@lru_cache(maxsize=4096)
def _head(name: str, unit: str, kind: MetricKind, description: str, type_: MetricType) -> MetricHead:
    return MetricHead(Descriptor(name, unit, kind, description), type_)


def _pop_scope(labels: Labels) -> SampleScope:
    parts = {label.removeprefix(_SCOPE): labels.pop(label) for label in sorted(labels) if label.startswith(_SCOPE)}
    name, version, schema = (parts.pop(part, "") for part in ("name", "version", "schema_url"))
    return SampleScope(name, version, schema, tuple(parts.items()))


def _renamed(
    part: PartOfPoint, renamed: Renamed, resource: SampleResource, labels: Labels, family: PageFamily
) -> PageSample:
    further: Pairs = tuple(renamed.attributes.items())
    kind = renamed.kind if renamed.kind and part.role in ("number", "created") else part.kind
    if renamed.of_gpu:
        from otel_zernel_receivers.prometheus.relabelling.gpu_labels import split_labels

        about, own = split_labels(labels)
        resource = resource._replace(attributes=tuple(sorted(about.items())))
        further, labels = (*further, *sorted(own.items())), {}
    point = _point(resource, labels, renamed.name, kind, family, renamed.unit, further)
    return PageSample(part.role, point, part.bound, renamed.scale, renamed.maybe_percent)
