"""What may be chosen about a page; names and defaults are those of otelcol's prometheus exporter."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Literal, Self

TranslationStrategy = Literal[
    "UnderscoreEscapingWithSuffixes",
    "UnderscoreEscapingWithoutSuffixes",
    "NoUTF8EscapingWithSuffixes",
    "NoTranslation",
]


@dataclass(frozen=True, slots=True)
class ResourceLabels:
    """Which resource attributes become labels of every series, by globs. `excluded` alone means all but those."""

    included: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()

    def __contains__(self, attribute: str) -> bool:
        wanted = any(fnmatchcase(attribute, glob) for glob in self.included) if self.included else bool(self.excluded)
        return wanted and not any(fnmatchcase(attribute, glob) for glob in self.excluded)


@dataclass(frozen=True, slots=True)
class Options:
    """How a page names and keeps its series."""

    namespace: str = ""
    """Goes in front of every name, with an underscore."""
    const_labels: Mapping[str, str] = field(default_factory=dict)
    """Labels of every series."""
    label_names: Mapping[str, str] = field(default_factory=dict)
    """The label to use for an OpenTelemetry attribute, where the rule's is not wanted: `process.pid: pid`."""
    resource_constant_labels: ResourceLabels = ResourceLabels()
    target_labels: bool = True
    """`job` and `instance` on every series. False for a page about the program that serves it: its scraper knows."""
    without_scope_info: bool = False
    """No `otel_scope_*` labels."""
    translation_strategy: TranslationStrategy = "UnderscoreEscapingWithSuffixes"
    send_timestamps: bool = False
    """Writes the points' own times; without, Prometheus takes the time of the scrape."""
    metric_expiration: float = 300.0
    """Seconds a series stays without a new point."""

    @property
    def escapes(self) -> bool:
        """Whether names are brought down to Prometheus's classic characters."""
        return self.translation_strategy.startswith("Underscore")

    @property
    def adds_suffixes(self) -> bool:
        """Whether names end in unit and `_total`."""
        return self.translation_strategy.endswith("WithSuffixes")

    @property
    def escaped(self) -> Self:
        """The same with classic names."""
        classic: TranslationStrategy = (
            "UnderscoreEscapingWithSuffixes" if self.adds_suffixes else "UnderscoreEscapingWithoutSuffixes"
        )
        return replace(self, translation_strategy=classic)
