"""`service::telemetry`: the collector's own logs and metrics, in the schema of the OpenTelemetry Collector."""

from importlib.util import find_spec
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from otel_zernel.types import PositiveDuration, Secret, Section

Port = Annotated[int, Field(ge=0, le=65535)]


class LogSampling(Section):
    """How repeated messages are dropped, as in the sampler of zap, the logger of the OpenTelemetry Collector."""

    enabled: bool = True
    tick: PositiveDuration = 10.0
    """The period in which equal messages are counted, in seconds. Equal means the same level and template."""
    initial: Annotated[int, Field(ge=0)] = 10
    """The number of equal messages that are logged in each tick."""
    thereafter: Annotated[int, Field(ge=0)] = 100
    """After `initial`, one message in this many is logged: 100 logs every hundredth. 0 logs none."""


class LogSettings(Section):
    """The log on stderr."""

    level: Literal["debug", "info", "warn", "error"] = "info"
    encoding: Literal["console", "json"] = "console"
    sampling: LogSampling = LogSampling.model_construct()
    initial_fields: dict[str, Any] = Field(default_factory=dict)
    """Fields of every line."""


class PrometheusPull(Section):
    """The address of the page with the collector's own metrics."""

    host: str = "localhost"
    port: Port = 8888
    """0 lets the operating system choose."""
    without_scope_info: bool = True
    """Whether the `otel_scope_*` labels are omitted."""
    without_units: bool = True
    """Whether names have no unit as suffix."""
    without_type_suffix: bool = True
    """Whether the names of sums do not end in `_total`. Must be equal to `without_units`."""

    @model_validator(mode="after")
    def _both_suffixes_or_none(self) -> Self:
        if self.without_units != self.without_type_suffix:
            raise ValueError("without_units and without_type_suffix must be equal: names have both suffixes or none")
        return self


class PullExporter(Section):
    """`pull::exporter`."""

    prometheus: PrometheusPull


class PullReader(Section):
    """Serves the collector's own metrics for scrapes."""

    exporter: PullExporter


class OtlpPush(Section):
    """The OTLP endpoint that receives the collector's own metrics."""

    protocol: Literal["grpc", "http/protobuf"] = "grpc"
    endpoint: str | None = None
    """The URL. The default is the protocol's default port on localhost."""
    insecure: bool = False
    """Whether to send without TLS."""
    headers: dict[str, Secret] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _is_installed(self) -> Self:
        if find_spec(f"opentelemetry.exporter.otlp.proto.{self.protocol.partition('/')[0]}") is None:
            raise ValueError("own metrics by OTLP need opentelemetry-exporter-otlp: pip install 'otel-zernel[gateway]'")
        return self


class PushExporter(Section):
    """`periodic::exporter`."""

    otlp: OtlpPush


def _milliseconds(value: Any) -> Any:
    """The OpenTelemetry Collector uses integer milliseconds here. A duration with a unit is also accepted."""
    return f"{value}ms" if isinstance(value, int) and not isinstance(value, bool) else value


Milliseconds = Annotated[PositiveDuration, BeforeValidator(_milliseconds)]
"""Seconds, written as integer milliseconds or as a duration."""


class PeriodicReader(Section):
    """Sends the collector's own metrics at an interval."""

    interval: Milliseconds = 60.0
    timeout: Milliseconds = 30.0
    exporter: PushExporter


class MetricReader(Section):
    """One reader of the collector's own metrics: `pull` or `periodic`."""

    pull: PullReader | None = None
    periodic: PeriodicReader | None = None

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if (self.pull is None) == (self.periodic is None):
            raise ValueError("must have exactly one of the keys pull and periodic")
        return self


_PAGE = PullExporter.model_construct(prometheus=PrometheusPull.model_construct())
_SERVED_LOCALLY = MetricReader.model_construct(pull=PullReader.model_construct(exporter=_PAGE))


class MetricSettings(Section):
    """The collector's own metrics (`otelcol_*`)."""

    level: Literal["none", "basic", "normal", "detailed"] = "normal"
    readers: list[MetricReader] = Field(default_factory=lambda: [_SERVED_LOCALLY])


class TraceSettings(Section):
    """The collector records no traces of itself, whatever the level is."""

    level: Literal["none", "basic", "normal", "detailed"] = "none"


class TelemetrySettings(Section):
    """The collector's own logs, metrics and resource attributes."""

    logs: LogSettings = LogSettings.model_construct()
    metrics: MetricSettings = MetricSettings.model_construct()
    traces: TraceSettings = TraceSettings.model_construct()
    resource: dict[str, str] = Field(default_factory=dict)
    """Resource attributes of the collector, besides `service.name`, `service.version` and `service.instance.id`."""
