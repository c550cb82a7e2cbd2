"""The prometheus receiver: scrapes the metrics pages of other programs, as Prometheus does."""

from otel_zernel_receivers.prometheus.receiver import PrometheusReceiver as PrometheusReceiver
