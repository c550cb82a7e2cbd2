"""The metrics of the extension about itself."""

from otel_zernel.component.declaration import by_name, own

REVIEWS = own(
    "zernel.sidecar_injector.reviews",
    "{review}",
    "Requests of the API server. The outcome is injected, unchanged or rejected.",
    ("outcome",),
    "from the first request on",
)
METRICS = by_name(REVIEWS)
