"""The configuration of the prometheus exporter, with the names and defaults of the OpenTelemetry Collector."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, model_validator

from otel_zernel.authentication import AuthConfig
from otel_zernel.types import Address, ListenAddress, PositiveDuration
from otel_zernel_libraries.prometheus import Options
from otel_zernel_libraries.prometheus.config import SeriesConfig
from otel_zernel_libraries.prometheus.histograms import ascending
from otel_zernel_libraries.serving.api.server import OptionalApiId
from otel_zernel_libraries.serving.environment import default_port
from otel_zernel_libraries.serving.tls_config import ServerTlsConfig

_PORT = "ZERNEL_METRICS_PORT"


_MOST_BOUNDS = 500
"""Each bound is a time series of Prometheus for each series of the histogram."""


def _bounds(values: tuple[float, ...]) -> tuple[float, ...]:
    if not ascending(values):
        wrong = next(bound for index, bound in enumerate(values) if not ascending(values[: index + 1]))
        raise ValueError(
            f"bound {wrong:g} is wrong: bounds must be finite and ascending, each above the one before: [0.1, 0.5, 1]"
        )
    if not 0 < len(values) <= _MOST_BOUNDS:
        raise ValueError(f"give 1 to {_MOST_BOUNDS} bounds, not {len(values)}: each is a time series of Prometheus")
    return values


def _by_glob(value: Any) -> Any:
    """A plain list is for all metrics."""
    return {"*": value} if isinstance(value, list | tuple) else value


HistogramBounds = Annotated[dict[str, Annotated[tuple[float, ...], AfterValidator(_bounds)]], BeforeValidator(_by_glob)]
"""Ascending bounds by glob of the metric's OpenTelemetry name."""


class PrometheusConfig(SeriesConfig):
    """The address of the page, and how metrics are written there."""

    endpoint: ListenAddress = Address("localhost", 9091)
    """The address to listen on. The default port is `ZERNEL_METRICS_PORT`, if this environment variable is set."""
    api: OptionalApiId = None
    """The id of an `api` extension that serves the page in place of `endpoint`, with its `tls` and `auth`."""
    tls: ServerTlsConfig | None = None
    """TLS of the server. null serves plain HTTP."""
    auth: AuthConfig | None = None
    """The extension that checks requests. null lets everybody read the page."""
    const_labels: dict[str, str] = Field(default_factory=dict)
    """Labels added to every series."""
    native_histograms: bool = True
    """Serve exponential histograms as native histograms to scrapers that request the protobuf format."""
    histogram_bounds: HistogramBounds | None = None
    """Classic bounds of exponential histograms, and of histograms whose bounds differ from point to point: a list, or
    lists by glob of the OpenTelemetry name.

    null, and metrics that no glob matches: fixed bounds by unit.
    """
    send_timestamps: bool = False
    """Write the timestamp of each point. Else Prometheus uses the time of the scrape."""
    metric_expiration: PositiveDuration = 300.0
    """Seconds without a new point after which a series is removed."""
    max_series: Annotated[int, Field(gt=0)] = 100_000
    """The most series. Points of further series are dropped and counted. 100,000 series take about 90 MB."""
    enable_open_metrics: bool = True
    """Serve OpenMetrics to scrapers that request it. The OpenTelemetry Collector's default is false."""
    without_scope_info: bool = False
    """Omit the `otel_scope_*` labels."""
    naming: Literal["opentelemetry", "dcgm"] = "opentelemetry"
    """`dcgm` gives the metrics of GPUs the names, labels and units of NVIDIA's dcgm-exporter."""
    dcgm_hostname_label: Literal["hostname", "Hostname"] = "hostname"
    """With `naming: dcgm`, the label of the host's name: `Hostname` before dcgm-exporter 4.8.3."""

    @model_validator(mode="before")
    @classmethod
    def _from_environment(cls, fields: Any, info: ValidationInfo) -> Any:
        has_own_server = isinstance(fields, Mapping) and not fields.get("api")
        return default_port(fields, info, _PORT, cls.model_fields["endpoint"].default) if has_own_server else fields

    @model_validator(mode="after")
    def _has_one_server(self) -> Self:
        for name in ("endpoint", "tls", "auth"):
            value, default = getattr(self, name), type(self).model_fields[name].default
            if self.api and value != default:
                raise ValueError(f"api and {name} exclude each other: set {name} in the api extension")
        return self

    @property
    def options(self) -> Options:
        """The options of the page."""
        return Options(
            namespace=self.namespace,
            const_labels=self.const_labels,
            label_names=self.label_names,
            resource_constant_labels=self.resource_labels,
            without_scope_info=self.without_scope_info,
            translation_strategy=self.naming_strategy,
            native_histograms=self.native_histograms,
            histogram_bounds=self.histogram_bounds or {},
            send_timestamps=self.send_timestamps,
            metric_expiration=self.metric_expiration,
            max_series=self.max_series,
            verbatim=_DcgmNames() if self.naming == "dcgm" else (),
        )


class _DcgmNames:
    """All names of DCGM's fields and of dcgm-exporter, also those that we have no table for."""

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name.startswith("DCGM_")
