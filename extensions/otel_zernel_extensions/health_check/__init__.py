"""Serves the state of the collector over HTTP, for the probes of Kubernetes and load balancers."""

from otel_zernel_extensions.health_check.extension import HealthCheckExtension as HealthCheckExtension
