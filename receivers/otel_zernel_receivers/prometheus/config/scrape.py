"""A scrape job, with the keys and defaults of Prometheus."""

from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from otel_zernel.types import Section
from otel_zernel_receivers.prometheus.config.http import ScrapeHttpConfig
from otel_zernel_receivers.prometheus.config.quantities import ByteSize, LongDuration
from otel_zernel_receivers.prometheus.config.relabel import RelabelConfig

ScrapeProtocol = Literal[
    "PrometheusProto", "OpenMetricsText1.0.0", "OpenMetricsText0.0.1", "PrometheusText1.0.0", "PrometheusText0.0.4"
]
TEXT_PROTOCOLS: tuple[ScrapeProtocol, ...] = ("OpenMetricsText1.0.0", "PrometheusText1.0.0", "PrometheusText0.0.4")
"""The defaults of `scrape_protocols`."""
Limit = Annotated[int, Field(ge=0)]
LARGEST_BODY = 64 * 2**20
"""The default of `body_size_limit` in bytes: about 500,000 series."""


class StaticTargets(Section):
    """Targets with common labels."""

    targets: tuple[str, ...] = ()
    """`host:port` each."""
    labels: dict[str, str] = Field(default_factory=dict)
    """Labels of all series of these targets."""

    @field_validator("targets")
    @classmethod
    def _are_addresses(cls, targets: tuple[str, ...]) -> tuple[str, ...]:
        for target in targets:
            if "/" in target or not target.strip():
                raise ValueError(
                    f"{target!r} is not an address: write host:port; the path belongs in metrics_path, https in scheme"
                )
            _, colon, port = target.rpartition(":")
            if colon and not target.endswith("]") and not (port.isdecimal() and 0 < int(port) < 65536):
                raise ValueError(f"{target!r} has no valid port: write host:port with a port of 1 to 65535")
        return targets


class FileDiscoveryConfig(Section):
    """Files with targets, in JSON or YAML, which are read again when they change."""

    files: Annotated[list[str], Field(min_length=1)]
    """Paths and globs that end with `.json`, `.yml` or `.yaml`."""
    refresh_interval: LongDuration = 300.0
    """Seconds between readings, besides those after changes."""

    @field_validator("files")
    @classmethod
    def _have_a_known_ending(cls, files: list[str]) -> list[str]:
        for file in files:
            if not file.endswith((".json", ".yml", ".yaml")):
                raise ValueError(f"{file!r} must end with .json, .yml or .yaml")
        return files


class DnsDiscoveryConfig(Section):
    """Names whose addresses are the targets."""

    names: Annotated[list[str], Field(min_length=1)]
    """Host names, such as that of a headless service."""
    type: Literal["A", "AAAA"]
    """The kind of addresses. SRV and MX are not supported."""
    port: Annotated[int, Field(gt=0, le=65535)]
    """The port of the targets."""
    refresh_interval: LongDuration = 30.0
    """Seconds between queries."""


class ScrapeLimits(Section):
    """Limits of a page. 0 means no limit, but for `body_size_limit`. A page beyond a limit fails as a whole."""

    sample_limit: Limit = 0
    """Samples after relabelling."""
    label_limit: Limit = 0
    """Labels of a sample."""
    label_name_length_limit: Limit = 0
    """Characters of a label's name."""
    label_value_length_limit: Limit = 0
    """Characters of a label's value."""
    target_limit: Limit = 0
    """Targets of a job after relabelling. Beyond, none of them is scraped."""
    body_size_limit: ByteSize = LARGEST_BODY
    """Bytes of a page, uncompressed. 0 means the default."""


class ScrapeDefaults(ScrapeLimits):
    """The options that jobs take from `global` if they do not set them."""

    scrape_interval: LongDuration = 60.0
    """Seconds from one scrape to the next."""
    scrape_timeout: LongDuration = 10.0
    """Seconds after which a scrape fails."""
    scrape_protocols: Annotated[list[ScrapeProtocol], Field(min_length=1)] = [*TEXT_PROTOCOLS]  # noqa: RUF012  # copied
    """The formats to ask for, the best first."""
    scrape_native_histograms: bool = False
    """Ask for protobuf first, and read its native histograms. They become exponential histograms."""
    always_scrape_classic_histograms: bool = False
    """Read the classic buckets too where a histogram is native."""


class GlobalScrapeConfig(ScrapeDefaults):
    """The defaults of all jobs."""

    external_labels: dict[str, str] = Field(default_factory=dict)
    """Labels of all series that do not have them."""


class ScrapeJobConfig(ScrapeHttpConfig, ScrapeDefaults):
    """One job: its targets, and how to scrape them. Options of `global` that are not set are taken from there."""

    job_name: Annotated[str, Field(min_length=1)]
    """The label `job`, which becomes the resource's `service.name`."""
    metrics_path: str = "/metrics"
    """The path of the page."""
    scheme: Literal["http", "https"] = "http"
    """The protocol."""
    params: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """Parameters of the URL, with a list of values each."""
    honor_labels: bool = False
    """If a label of the page conflicts with one of the target, keep the page's. Else it becomes `exported_<name>`."""
    honor_timestamps: bool = True
    """Use the times in the page. Else the time of the scrape."""
    track_timestamps_staleness: bool = False
    """End series with times of their own too when they vanish."""
    enable_compression: bool = True
    """Accept gzip."""
    fallback_scrape_protocol: ScrapeProtocol | None = None
    """The format of a page without a known Content-Type. By default the text format."""
    static_configs: tuple[StaticTargets, ...] = ()
    """Fixed targets."""
    file_sd_configs: tuple[FileDiscoveryConfig, ...] = ()
    """Targets from files."""
    dns_sd_configs: tuple[DnsDiscoveryConfig, ...] = ()
    """Targets from DNS."""
    relabel_configs: tuple[RelabelConfig, ...] = ()
    """Rules for the labels of targets, before the scrape."""
    metric_relabel_configs: tuple[RelabelConfig, ...] = ()
    """Rules for the labels of samples, after the scrape."""

    @model_validator(mode="after")
    def _timeout_fits(self) -> Self:
        given = self.model_fields_set
        if {"scrape_timeout", "scrape_interval"} <= given and self.scrape_timeout > self.scrape_interval:
            raise ValueError("scrape_timeout must not be longer than scrape_interval")
        return self

    def with_defaults(self, common: ScrapeDefaults) -> Self:
        """The job with the options of `global` that it does not set itself."""
        names = ScrapeDefaults.model_fields.keys() - self.model_fields_set
        filled = self.model_copy(update={name: getattr(common, name) for name in names})
        return filled.model_copy(
            update={
                "scrape_timeout": min(filled.scrape_timeout, filled.scrape_interval),
                "body_size_limit": filled.body_size_limit or LARGEST_BODY,
            }
        )

    @property
    def protocols(self) -> tuple[ScrapeProtocol, ...]:
        """The formats to ask for, the best first."""
        if not self.scrape_native_histograms:
            return tuple(self.scrape_protocols)
        return (
            "PrometheusProto",
            *(scrape_protocol for scrape_protocol in self.scrape_protocols if scrape_protocol != "PrometheusProto"),
        )
