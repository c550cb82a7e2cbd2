"""The configuration of the prometheus receiver."""

from otel_zernel_receivers.prometheus.config.receiver import PrometheusReceiverConfig as PrometheusReceiverConfig
from otel_zernel_receivers.prometheus.config.scrape import ScrapeJobConfig as ScrapeJobConfig
