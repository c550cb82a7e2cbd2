"""The metrics of the extension about itself, with the names of the semantic conventions."""

from otel_zernel.component.declaration import DeclaredMetric, by_name

DURATION = DeclaredMetric(
    "http.server.request.duration",
    "s",
    "histogram",
    "Time from a request to the end of its answer; of streams and WebSockets, to the beginning of the answer.",
    ("http.request.method", "url.scheme", "http.route", "http.response.status_code", "error.type"),
    "from the first request on",
    own=True,
)
ACTIVE = DeclaredMetric(
    "http.server.active_requests",
    "{request}",
    "up_down",
    "Requests that are being answered, with the open streams and WebSockets.",
    ("http.request.method", "url.scheme"),
    "from the first request on",
    own=True,
)
METRICS = by_name(DURATION, ACTIVE)
