"""The metrics of the receiver, from `metrics.py`."""

from otel_zernel.component.declaration import DeclaredMetric, by_name
from otel_zernel_receivers.host import metrics as m


def _declared(metric: m.HostMetric) -> DeclaredMetric:
    when = f"with the scraper `{metric.scraper}`"
    if not metric.enabled:
        when += ", only if enabled in `metrics`"
    return DeclaredMetric(metric.name, metric.unit, metric.kind, metric.description, metric.attributes, when)


METRICS = by_name(*map(_declared, m.METRICS.values()))
