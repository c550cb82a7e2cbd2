"""The configuration of the prometheus receiver."""

from otel_zernel_receivers.prometheus.config.receiver import PrometheusReceiverConfig
from otel_zernel_receivers.prometheus.config.scrape import ScrapeJobConfig

__all__ = ["PrometheusReceiverConfig", "ScrapeJobConfig"]
