"""The metrics of the live exporter about itself."""

from otel_zernel.component.declaration import by_name, own

SLOW_CLIENTS = own(
    "zernel.live.slow_clients", "{client}", "Readers of the stream that were dropped because they read too slowly."
)
METRICS = by_name(SLOW_CLIENTS)
