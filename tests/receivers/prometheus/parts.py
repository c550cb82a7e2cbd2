"""The receiver and its parts, as tests use them."""

from typing import Any

from otel_zernel.batch import Batch
from otel_zernel.testing import make_context
from otel_zernel_receivers.prometheus import PrometheusReceiver
from otel_zernel_receivers.prometheus.config import PrometheusReceiverConfig, ScrapeJobConfig
from otel_zernel_receivers.prometheus.discovery.targets import TargetRules
from otel_zernel_receivers.prometheus.pages.text import TextReader
from otel_zernel_receivers.prometheus.points.resolving import SampleRules
from otel_zernel_receivers.prometheus.points.target_series import PageCounts, TargetSeries
from otel_zernel_receivers.prometheus.relabelling.renaming import Renames
from otel_zernel_receivers.prometheus.relabelling.rules import relabel_rules

SECOND = 1_000_000_000
REPORT = {"up": 1.0, "scrape_duration_seconds": 0.5, "scrape_samples_scraped": 0.0}
REPORT |= {"scrape_samples_post_metric_relabeling": 0.0, "scrape_series_added": 0.0}


def config_of(*targets: str, receiver: dict[str, Any] | None = None, **job: Any) -> PrometheusReceiverConfig:
    """A configuration with one job, `test`."""
    settings = {"job_name": "test", "static_configs": [{"targets": list(targets)}], **job}
    return PrometheusReceiverConfig.model_validate({"config": {"scrape_configs": [settings]}, **(receiver or {})})


def job_of(*targets: str, **job: Any) -> ScrapeJobConfig:
    return config_of(*targets, **job).config.jobs[0]


def receiver_of(*targets: str, context: Any = None, **settings: Any) -> PrometheusReceiver:
    """A receiver that scrapes every 250 ms."""
    settings = {"scrape_interval": "250ms", **settings}
    return PrometheusReceiver(config_of(*targets, **settings), context or make_context("receivers", "prometheus"))


def target_rules(**job: Any) -> TargetRules:
    config = job_of("unused:1", **job)
    return TargetRules(config, relabel_rules(config.relabel_configs), {})


class TextTarget:
    """A target whose pages are given as text."""

    def __init__(
        self, labels: dict[str, str] | None = None, receiver: dict[str, Any] | None = None, **job: Any
    ) -> None:
        config = config_of("unused:1", receiver=receiver, **job)
        settings = config.config.jobs[0]
        rules = SampleRules(
            {"job": "test", "instance": "host:1", **(labels or {})},
            Renames(config.rename, config.presets),
            settings,
            relabel_rules(settings.metric_relabel_configs),
            settings.honor_labels,
            config.trim_metric_suffixes,
        )
        self.series = TargetSeries(rules, {}, track_timed=settings.track_timestamps_staleness)
        self.reader = TextReader()
        self.counts = PageCounts()

    def scrape(self, text: str, second: float = 100, *, openmetrics: bool = False) -> Batch:
        """The batch of a page at a time in s."""
        body = (text + ("# EOF\n" if openmetrics else "")).encode()
        page = self.reader.read(body, openmetrics=openmetrics, known=self.series.samples)
        time_ns = round(second * SECOND)
        points, self.counts = self.series.add(page, time_ns)
        return self.series.batch(points, REPORT, time_ns)
