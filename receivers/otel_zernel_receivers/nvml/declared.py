"""The metrics of the receiver: those of GPUs, from `points/metrics.py`, and those about itself."""

from otel_zernel.component.declaration import DeclaredMetric, by_name, own
from otel_zernel_receivers.nvml.points import attributes as a
from otel_zernel_receivers.nvml.points import metrics as m

TIMEOUTS = own("zernel.nvml.timeouts", "{timeout}", "Calls that a GPU did not answer in time.", ("hw.id",))
QUERY_ERRORS = own("zernel.nvml.query.errors", "{error}", "Queries that failed and may work again.", (a.QUERY, a.ERROR))


def _declared(metric: m.NvmlMetric) -> DeclaredMetric:
    when = "if the GPU and its driver report it"
    if not metric.enabled:
        when = f"only if enabled in `metrics`, and {when}"
    attributes = ("hw.id", *metric.attributes)
    return DeclaredMetric(metric.name, metric.unit, metric.kind, metric.description, attributes, when)


METRICS = by_name(*map(_declared, m.METRICS.values()), TIMEOUTS, QUERY_ERRORS)
