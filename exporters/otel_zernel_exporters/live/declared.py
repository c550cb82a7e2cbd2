"""The metrics of the live exporter about itself."""

from otel_zernel.component.declaration import DeclaredMetric, by_name

METRICS = by_name(
    DeclaredMetric(
        "zernel.live.slow_clients",
        "{client}",
        "sum",
        "Readers of the stream that were dropped because they read too slowly.",
        (),
        "from the first one on",
        own=True,
    ),
)
