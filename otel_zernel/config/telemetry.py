"""`service::telemetry`: the collector's logs and metrics about itself, in otelcol's schema."""

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from otel_zernel.types import PositiveDuration, Secret, Section

Port = Annotated[int, Field(ge=0, le=65535)]


class LogSampling(Section):
    """How repeated messages are thinned, as zap's sampler does it."""

    enabled: bool = True
    tick: PositiveDuration = 10.0
    """The time over which messages of one template are counted."""
    initial: Annotated[int, Field(ge=0)] = 10
    """So many of one template are logged in a tick."""
    thereafter: Annotated[int, Field(ge=0)] = 100
    """Then every so many-th; 0 for none."""


class LogSettings(Section):
    """What is logged to stderr, and how."""

    level: Literal["debug", "info", "warn", "error"] = "info"
    encoding: Literal["console", "json"] = "console"
    sampling: LogSampling = LogSampling()


class PrometheusPull(Section):
    """Where own metrics are served for a scrape."""

    host: str = "localhost"
    port: Port = 8888
    """0 lets the system choose."""


class PullExporter(Section):
    prometheus: PrometheusPull


class PullReader(Section):
    exporter: PullExporter


class OtlpPush(Section):
    """Where own metrics are sent by OTLP."""

    protocol: Literal["grpc", "http/protobuf"] = "grpc"
    endpoint: str | None = None
    """The protocol's default on localhost where it is not set."""
    insecure: bool = False
    """Send without TLS."""
    headers: dict[str, Secret] = Field(default_factory=dict)


class PushExporter(Section):
    otlp: OtlpPush


def _milliseconds(value: Any) -> Any:
    """otelcol writes whole milliseconds here; a duration with a unit is good too."""
    return f"{value}ms" if isinstance(value, int) and not isinstance(value, bool) else value


Milliseconds = Annotated[PositiveDuration, BeforeValidator(_milliseconds)]
"""Seconds, written as whole milliseconds or as a duration."""


class PeriodicReader(Section):
    interval: Milliseconds = 60.0
    timeout: Milliseconds = 30.0
    exporter: PushExporter


class MetricReader(Section):
    """One way out for own metrics: `pull` or `periodic`."""

    pull: PullReader | None = None
    periodic: PeriodicReader | None = None

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if (self.pull is None) == (self.periodic is None):
            raise ValueError("must have either pull or periodic")
        return self


_SERVED_LOCALLY = MetricReader(pull=PullReader(exporter=PullExporter(prometheus=PrometheusPull())))


class MetricSettings(Section):
    """Own metrics (`otelcol_*`)."""

    level: Literal["none", "basic", "normal", "detailed"] = "normal"
    readers: list[MetricReader] = Field(default_factory=lambda: [_SERVED_LOCALLY])


class TelemetrySettings(Section):
    """What the collector tells about itself."""

    logs: LogSettings = LogSettings()
    metrics: MetricSettings = MetricSettings()
    resource: dict[str, str] = Field(default_factory=dict)
    """Attributes of the collector as a resource, on top of `service.name`, `service.version` and
    `service.instance.id`."""
