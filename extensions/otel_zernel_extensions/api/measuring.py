"""The metrics of requests, by the semantic conventions: https://opentelemetry.io/docs/specs/semconv/http/http-metrics/"""

from collections.abc import Callable, Mapping, MutableMapping
from typing import Any, Final

from opentelemetry.metrics import Meter

from otel_zernel_extensions.api.declared import ACTIVE, DURATION

_BOUNDS: Final = [0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10]
"""Those of the semantic conventions, in s."""
_METHODS: Final = {"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "CONNECT", "TRACE"}
_STREAM: Final = b"text/event-stream"


class RequestMetrics:
    """Counts requests, and measures their durations."""

    def __init__(self, meter: Meter, monotonic: Callable[[], float]) -> None:
        self._duration = meter.create_histogram(
            DURATION.name, DURATION.unit, DURATION.description, explicit_bucket_boundaries_advisory=_BOUNDS
        )
        self._active = meter.create_up_down_counter(ACTIVE.name, ACTIVE.unit, ACTIVE.description)
        self._monotonic = monotonic

    def begun(self, scope: MutableMapping[str, Any]) -> "MeasuredRequest":
        """A request whose answer begins now. Call `ended` at its end."""
        method = scope.get("method", "GET")
        kind = {
            "http.request.method": method if method in _METHODS else "_OTHER",
            "url.scheme": {"ws": "http", "wss": "https"}.get(scope["scheme"], scope["scheme"]),
        }
        self._active.add(1, kind)
        return MeasuredRequest(self, scope, kind, self._monotonic())

    def record(self, request: "MeasuredRequest") -> None:
        """Records the time since the beginning."""
        attributes: dict[str, str | int] = {**request.kind, "http.response.status_code": request.status}
        if route := request.scope.get("route"):
            attributes["http.route"] = route
        if request.status >= 500:
            attributes["error.type"] = str(request.status)
        self._duration.record(self._monotonic() - request.since, attributes)

    def ended(self, kind: Mapping[str, str]) -> None:
        """Counts one active request less."""
        self._active.add(-1, dict(kind))


class MeasuredRequest:
    """One request and its answer."""

    def __init__(
        self, metrics: RequestMetrics, scope: MutableMapping[str, Any], kind: Mapping[str, str], since: float
    ) -> None:
        self.scope = scope
        self.kind = kind
        self.since = since
        self.status = 0
        """The status of the answer; 0 before it begins."""
        self._metrics = metrics
        self._is_recorded = False

    def answered(self, status: int, headers: Mapping[bytes, bytes]) -> None:
        """The answer begins. A stream has no duration besides this one."""
        self.status = status
        if status == 101 or headers.get(b"content-type", b"").startswith(_STREAM):
            self._record()

    def ended(self) -> None:
        """The answer is complete, or the client has gone."""
        if self.status:
            self._record()
        self._metrics.ended(self.kind)

    def _record(self) -> None:
        if not self._is_recorded:
            self._is_recorded = True
            self._metrics.record(self)
