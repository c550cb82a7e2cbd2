"""The configuration of the prometheus exporter, with otelcol's names and defaults."""

import re
from typing import Annotated

from pydantic import AfterValidator, Field

from otel_zernel.component import ComponentConfig
from otel_zernel.exposition import Options, ResourceLabels, TranslationStrategy
from otel_zernel.types import Address, ListenAddress, PositiveDuration


def _label(name: str) -> str:
    if not re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_]*", name) or name.startswith("__"):
        raise ValueError(f"{name!r} is no label: use letters, digits and _, no digit in front, and no __")
    return name


Label = Annotated[str, AfterValidator(_label)]


class ResourceLabelsConfig(ComponentConfig):
    """Which resource attributes become labels of every series."""

    included: tuple[str, ...] = ()
    """Attribute names or globs (`k8s.*`)."""
    excluded: tuple[str, ...] = ()
    """Those to leave out again; without `included`, all others are taken."""


class PrometheusConfig(ComponentConfig):
    """Where the page is, and how it is written."""

    endpoint: ListenAddress = Address("localhost", 9091)
    """The address to listen on."""
    namespace: str = ""
    """Goes in front of every metric's name, with an underscore."""
    const_labels: dict[str, str] = Field(default_factory=dict)
    """Labels of every series."""
    label_names: dict[str, Label] = Field(default_factory=dict)
    """Labels of one's own choice, by OpenTelemetry attribute: `process.pid: pid`."""
    resource_constant_labels: ResourceLabelsConfig = ResourceLabelsConfig()
    """Resource attributes that every series carries; the others are in `target_info`."""
    send_timestamps: bool = False
    """Write the points' own times; without, Prometheus takes the time of the scrape."""
    metric_expiration: PositiveDuration = 300.0
    """A series without a new point for so long goes."""
    enable_open_metrics: bool = True
    """Serve OpenMetrics to those who ask for it. otelcol's default is false."""
    without_scope_info: bool = False
    """Leave the `otel_scope_*` labels out."""
    translation_strategy: TranslationStrategy = "UnderscoreEscapingWithSuffixes"
    """How OpenTelemetry names become Prometheus names."""

    @property
    def options(self) -> Options:
        """The page's part of it."""
        resource = self.resource_constant_labels
        return Options(
            namespace=self.namespace,
            const_labels=self.const_labels,
            label_names=self.label_names,
            resource_constant_labels=ResourceLabels(resource.included, resource.excluded),
            without_scope_info=self.without_scope_info,
            translation_strategy=self.translation_strategy,
            send_timestamps=self.send_timestamps,
            metric_expiration=self.metric_expiration,
        )
