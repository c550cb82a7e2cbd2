"""Says over HTTP whether the collector works: for probes of Kubernetes and load balancers."""

from otel_zernel_extensions.health_check.extension import HealthCheckExtension

__all__ = ["HealthCheckExtension"]
