"""The part of the configuration that exporters of Prometheus' formats share: names, and labels of resources."""

import re
from typing import Annotated, Final

from pydantic import AfterValidator, Field

from otel_zernel.component import ComponentConfig
from otel_zernel_libraries.prometheus.options import ResourceLabels, TranslationStrategy
from otel_zernel_libraries.training import semconv


def _label(name: str) -> str:
    if not re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_]*", name) or name.startswith("__"):
        raise ValueError(
            f"{name!r} is not a valid label name: use letters, digits and _, with no digit and no __ at the beginning"
        )
    return name


LabelName = Annotated[str, AfterValidator(_label)]


class ResourceLabelsConfig(ComponentConfig):
    """Which resource attributes become labels of every series."""

    included: tuple[str, ...] = ()
    """Attribute names or globs (`k8s.*`)."""
    excluded: tuple[str, ...] = ()
    """Attribute names or globs to exclude. Without `included`, all others become labels."""


IDENTITY = (
    *("host.name", "process.executable.name", semconv.RANK, semconv.JOB_ID),
    *("k8s.namespace.name", "k8s.pod.name", "k8s.container.name"),
    *("hw.type", "hw.name", "hw.model", "hw.parent", semconv.GPU_INDEX),
)
"""The resource attributes that say which host, process, rank, job, pod or GPU a series is about."""

_OF_SERVICE: Final = ("service.name", "service.namespace", "service.instance.id")


class ResourceConversionConfig(ComponentConfig):
    """Resource attributes as labels."""

    enabled: bool = False
    """Whether all resource attributes become labels of every series."""
    exclude_service_attributes: bool = False
    """Whether `service.name`, `service.namespace` and `service.instance.id` are left out. They are in `job` and
    `instance` already."""


class SeriesConfig(ComponentConfig):
    """How the names of metrics, attributes and resources become those of series."""

    namespace: str = ""
    """Prefix of every metric name, joined by an underscore."""
    label_names: dict[str, LabelName] = Field(default_factory=dict)
    """Label names by OpenTelemetry attribute: `process.pid: pid`."""
    resource_to_telemetry_conversion: ResourceConversionConfig = ResourceConversionConfig.model_construct()
    """Whether all resource attributes become labels."""
    resource_constant_labels: ResourceLabelsConfig = ResourceLabelsConfig.model_construct(included=IDENTITY)
    """Resource attributes that become labels of every series. The OpenTelemetry Collector's default is none."""
    add_metric_suffixes: bool = True
    """Whether names get their unit and `_total`."""
    translation_strategy: TranslationStrategy | None = None
    """How OpenTelemetry names become Prometheus names. null: classic names, with the suffixes of
    `add_metric_suffixes`."""

    @property
    def resource_labels(self) -> ResourceLabels:
        """The attributes that become labels."""
        conversion, chosen = self.resource_to_telemetry_conversion, self.resource_constant_labels
        if conversion.enabled:
            return ResourceLabels(("*",), _OF_SERVICE if conversion.exclude_service_attributes else ())
        return ResourceLabels(chosen.included, chosen.excluded)

    @property
    def naming_strategy(self) -> TranslationStrategy:
        """How names are translated."""
        if self.translation_strategy:
            return self.translation_strategy
        return "UnderscoreEscapingWithSuffixes" if self.add_metric_suffixes else "UnderscoreEscapingWithoutSuffixes"
