"""The options of a page. Names and defaults are those of the Prometheus exporter of the OpenTelemetry Collector."""

from collections.abc import Container, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Literal, Self

from otel_zernel_libraries.prometheus.histograms import Bounds, bounds_of, default_bounds

TranslationStrategy = Literal[
    "UnderscoreEscapingWithSuffixes",
    "UnderscoreEscapingWithoutSuffixes",
    "NoUTF8EscapingWithSuffixes",
    "NoTranslation",
]


@dataclass(frozen=True, slots=True)
class ResourceLabels:
    """Globs of the resource attributes that become labels of every series.

    If only `excluded` is set, all other attributes become labels. If neither is set, none does.
    """

    included: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()

    def __contains__(self, attribute: str) -> bool:
        wanted = any(fnmatchcase(attribute, glob) for glob in self.included) if self.included else bool(self.excluded)
        return wanted and not any(fnmatchcase(attribute, glob) for glob in self.excluded)


@dataclass(frozen=True, slots=True)
class Options:
    """How a page names its series, and how long it keeps them."""

    namespace: str = ""
    """A prefix for every metric name. An underscore follows it."""
    const_labels: Mapping[str, str] = field(default_factory=dict)
    """Labels that are added to every series."""
    label_names: Mapping[str, str] = field(default_factory=dict)
    """Label names by attribute name, to override the naming rule: `process.pid: pid`."""
    resource_constant_labels: ResourceLabels = ResourceLabels()
    """Resource attributes that become labels of every series."""
    target_labels: bool = True
    """Whether every series has the labels `job` and `instance`.

    False for a page about the serving program itself: the scraper adds these labels.
    """
    without_scope_info: bool = False
    """Whether the `otel_scope_*` labels are omitted."""
    translation_strategy: TranslationStrategy = "UnderscoreEscapingWithSuffixes"
    """How OpenTelemetry names become Prometheus names."""
    verbatim: Container[str] = ()
    """The metrics whose names are Prometheus names already: they get no namespace, no unit and no `_total`."""
    send_timestamps: bool = False
    """Whether samples carry the timestamps of their points. Otherwise Prometheus uses the time of the scrape."""
    native_histograms: bool = True
    """Whether exponential histograms are native histograms in the protobuf format."""
    histogram_bounds: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """Classic bounds of exponential histograms by glob of the OpenTelemetry name. The first match decides.

    The other metrics have the default bounds of their unit.
    """
    metric_expiration: float = 300.0
    """Seconds after which a series without a new point is removed."""
    max_series: int = 100_000
    """The most series. 100,000 take about 90 MB."""

    def bounds_of(self, name: str, unit: str) -> Bounds:
        """The classic bounds of the exponential histograms of a metric with this OpenTelemetry name and UCUM unit."""
        for glob, bounds in self.histogram_bounds.items():
            if fnmatchcase(name, glob):
                return bounds_of(bounds)
        return default_bounds(unit)

    @property
    def escapes(self) -> bool:
        """Whether names are limited to classic characters: letters, digits, `_` and `:`."""
        return self.translation_strategy.startswith("Underscore")

    @property
    def adds_suffixes(self) -> bool:
        """Whether names get their unit and `_total` as suffixes."""
        return self.translation_strategy.endswith("WithSuffixes")

    @property
    def escaped(self) -> Self:
        """The same options with classic names."""
        classic: TranslationStrategy = (
            "UnderscoreEscapingWithSuffixes" if self.adds_suffixes else "UnderscoreEscapingWithoutSuffixes"
        )
        return replace(self, translation_strategy=classic)
