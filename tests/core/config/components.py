"""A registry of small components. Together, their configurations use every feature of the validation."""

from typing import Annotated, Any, Literal

import pytest
from pydantic import Field, ValidationInfo, model_validator

from otel_zernel.batch import Batch
from otel_zernel.component import ComponentConfig, Emit, Exporter, Extension, Processor, Receiver
from otel_zernel.config.load import load
from otel_zernel.config.schema import Settings, validate
from otel_zernel.errors import ConfigError
from otel_zernel.registry import Registry
from otel_zernel.types import Duration, ListenAddress, Ratio, Secret


class Mapping(ComponentConfig):
    timestamp: str
    columns: dict[str, int] = Field(default_factory=dict)


class InConfig(ComponentConfig):
    interval: Duration = 60.0
    layout: Literal["dcgm", "wide"] | Mapping = "dcgm"
    tags: tuple[str, ...] = ()


class In(Receiver):
    Config = InConfig

    async def run(self, emit: Emit) -> None: ...


class MissingIn(In):
    @classmethod
    def missing(cls) -> str:
        return "needs pyarrow: pip install 'otel-zernel[csv]'"


class Through(Processor):
    def process(self, batch: Batch) -> tuple[Batch]:
        return (batch,)


class Queue(ComponentConfig):
    queue_size: Annotated[int, Field(ge=1)] = 1000
    enabled: bool = True


class OutConfig(ComponentConfig):
    endpoint: str
    headers: dict[str, Secret] = Field(default_factory=dict)
    token: Secret | None = None
    queue: Queue = Queue()
    ratio: Ratio = 1.0
    listen: ListenAddress | None = None
    path: str = ""

    @model_validator(mode="before")
    @classmethod
    def _environment_default(cls, values: Any, info: ValidationInfo) -> Any:
        endpoint = (info.context or {}).get("environ", {}).get("OTEL_ENDPOINT")
        return {"endpoint": endpoint} | values if endpoint and isinstance(values, dict) else values

    @model_validator(mode="after")
    def _one_credential(self) -> "OutConfig":
        if self.token and self.headers:
            raise ValueError("token and headers exclude each other")
        return self


class Out(Exporter):
    Config = OutConfig

    async def export(self, batch: Batch) -> None: ...


class MetricsOut(Exporter):
    signals = frozenset({"metrics"})

    async def export(self, batch: Batch) -> None: ...


class BuggyConfig(ComponentConfig):
    @model_validator(mode="before")
    @classmethod
    def _buggy(cls, values: Any) -> Any:
        return values["x"]


class Buggy(Extension):
    Config = BuggyConfig


class Health(Extension):
    pass


def broken() -> type[Extension]:
    raise ImportError("No module named\n'nothing'")


def load_out() -> type[Out]:
    return Out


REGISTRY = Registry(
    {
        "receivers": {"in": lambda: In, "incomplete": lambda: MissingIn},
        "processors": {"through": lambda: Through},
        "exporters": {"out": load_out, "out_grpc": load_out, "metrics_out": lambda: MetricsOut},
        "extensions": {"health": lambda: Health, "buggy": lambda: Buggy, "broken": broken},
    }
)

MINIMAL = """
receivers: {in: }
exporters: {out: {endpoint: here}}
service: {pipelines: {training: {receivers: [in], exporters: [out]}}}
"""


def settings_of(*texts: str, overrides: tuple[str, ...] = (), environ: dict[str, str] | None = None) -> Settings:
    """The settings of YAML texts. Each text is one `--config`."""
    environ = environ or {}
    return validate(load([f"yaml:{text}" for text in texts], overrides, environ), REGISTRY, environ)


def out_config(text: str, environ: dict[str, str] | None = None) -> Any:
    """The configuration of the `out` exporter, with the options of a YAML flow mapping merged into it."""
    return settings_of(MINIMAL, f"exporters: {{out: {text}}}", environ=environ).exporters["out"].config


def problems(*texts: str, environ: dict[str, str] | None = None) -> list[str]:
    """The problems of YAML texts, without their sources."""
    with pytest.raises(ConfigError) as caught:
        settings_of(*texts, environ=environ)
    return [f"{problem.path}: {problem.message}" for problem in caught.value.problems]


def exporter_problem(text: str) -> str:
    """The single problem of the `out` exporter with these options, without the exporter's path."""
    (only,) = problems(MINIMAL, f"exporters: {{out: {text}}}")
    return only.removeprefix("exporters::out")
