"""The metrics of the websocket exporter about itself."""

from otel_zernel.component.declaration import by_name, own

SLOW_CLIENTS = own(
    "zernel.websocket.slow_clients", "{client}", "Readers of the feed that were dropped because they read too slowly."
)
SKIPPED_MESSAGES = own(
    "zernel.websocket.skipped_messages",
    "{message}",
    "Messages that a reader did not get because it had not read an earlier one; it gets the newest one next.",
)
METRICS = by_name(SLOW_CLIENTS, SKIPPED_MESSAGES)
