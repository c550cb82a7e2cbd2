"""The metric of the receiver about itself."""

from otel_zernel.component.declaration import by_name, own

REFUSED_REQUESTS = own(
    "zernel.otlp.refused_requests",
    "{request}",
    "Requests that the otlp receiver did not accept, by transport and reason.",
    ("transport", "reason"),
    "from the first such request on",
)
METRICS = by_name(REFUSED_REQUESTS)
