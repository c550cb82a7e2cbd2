"""The root of the configuration. `config` has the form of Prometheus' own file."""

from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from otel_zernel.component import ComponentConfig
from otel_zernel.types import Section
from otel_zernel_receivers.prometheus.config.scrape import GlobalScrapeConfig, ScrapeJobConfig


class RenameConfig(Section):
    """The OpenTelemetry metric for a Prometheus metric."""

    name: Annotated[str, Field(min_length=1)]
    """The new name."""
    unit: str | None = None
    """The unit, in UCUM. By default the one on the page."""
    scale: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    """The factor from the page's values to those of the unit: 0.01 for per cent to a ratio."""
    type: Literal["gauge", "sum", "up_down"] | None = None
    """The type of a number: gauge, sum (only grows), up_down. By default the one on the page."""
    attributes: dict[str, str] = Field(default_factory=dict)
    """Attributes to add to its points."""


class PrometheusFileConfig(Section):
    """The parts of Prometheus' configuration file that are about scraping."""

    global_: GlobalScrapeConfig = Field(GlobalScrapeConfig.model_construct(), alias="global")
    """The defaults of all jobs."""
    scrape_configs: Annotated[list[ScrapeJobConfig], Field(min_length=1)]
    """The jobs."""

    @model_validator(mode="after")
    def _jobs_differ(self) -> Self:
        names = [job.job_name for job in self.scrape_configs]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"job_name {name!r} is used {names.count(name)} times: each job needs its own")
        for job in self.jobs:
            if job.scrape_timeout > job.scrape_interval:
                raise ValueError(f"job {job.job_name}: scrape_timeout must not be longer than scrape_interval")
        return self

    @property
    def jobs(self) -> tuple[ScrapeJobConfig, ...]:
        """The jobs, with the defaults of `global`."""
        return tuple(job.with_defaults(self.global_) for job in self.scrape_configs)


class PrometheusReceiverConfig(ComponentConfig):
    """The targets to scrape, and how their metrics become OpenTelemetry's."""

    config: PrometheusFileConfig
    """The scrape jobs, in the form of Prometheus' configuration file."""
    trim_metric_suffixes: bool = False
    """Remove the suffixes for unit and type from names: `http_requests_total` becomes `http_requests`."""
    report_extra_scrape_metrics: bool = False
    """Also report `scrape_timeout_seconds`, `scrape_sample_limit` and `scrape_body_size_bytes`."""
    presets: tuple[Literal["dcgm-exporter"], ...] = ()
    """Built-in mappings of names, labels and units. `rename` comes first."""
    rename: Mapping[str, RenameConfig] = Field(default_factory=dict)
    """OpenTelemetry metrics by Prometheus name: `{name, unit, scale, type, attributes}`, or only the new name."""

    @field_validator("rename", mode="before")
    @classmethod
    def _name_alone(cls, rename: object) -> object:
        if not isinstance(rename, dict):
            return rename
        return {key: {"name": value} if isinstance(value, str) else value for key, value in rename.items()}
