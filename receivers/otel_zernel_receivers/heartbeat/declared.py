"""The metrics of the receiver: those of workers, and those about itself."""

from otel_zernel.component.declaration import DeclaredMetric, by_name, own
from otel_zernel_receivers.heartbeat.fleet.descriptors import METRICS as OF_WORKERS
from otel_zernel_receivers.heartbeat.fleet.descriptors import WorkerMetric

HEARTBEATS = own(
    "zernel.heartbeat.received",
    "{heartbeat}",
    "Heartbeats that the receiver got, by method: call or stream.",
    ("method",),
)
REFUSED = own(
    "zernel.heartbeat.refused",
    "{request}",
    "Requests of workers that the receiver did not accept, by reason.",
    ("reason",),
)
CLIENTS = DeclaredMetric(
    "zernel.heartbeat.clients", "{client}", "up_down", "Open WebSockets.", (), "from the first one on", own=True
)


def _declared(metric: WorkerMetric) -> DeclaredMetric:
    descriptor = metric.descriptor
    names = tuple(name for name, _ in metric.attributes)
    return DeclaredMetric(
        descriptor.name,
        descriptor.unit,
        "up_down" if descriptor.kind == "up_down" else "gauge",
        descriptor.description,
        names,
        metric.when,
    )


METRICS = by_name(*map(_declared, OF_WORKERS), HEARTBEATS, REFUSED, CLIENTS)
