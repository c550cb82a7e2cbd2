"""The metrics of the processor about itself, with the names of the OpenTelemetry Collector."""

from otel_zernel.component.declaration import DeclaredMetric, by_name, own

_ATTRIBUTES = ("processor",)
SEND_SIZE = DeclaredMetric(
    "otelcol_processor_batch_batch_send_size",
    "{unit}",
    "histogram",
    "Items of a batch that leaves.",
    _ATTRIBUTES,
    "from the first batch on",
    own=True,
)
SIZE_TRIGGER = own(
    "otelcol_processor_batch_batch_size_trigger_send", "{time}", "Sends because there were enough items.", _ATTRIBUTES
)
TIMEOUT_TRIGGER = own(
    "otelcol_processor_batch_timeout_trigger_send", "{time}", "Sends because `timeout` had passed.", _ATTRIBUTES
)
METRICS = by_name(SEND_SIZE, SIZE_TRIGGER, TIMEOUT_TRIGGER)
