"""CORS: whether a web page of another origin may send telemetry. https://fetch.spec.whatwg.org/#http-cors-protocol"""

import re
from collections.abc import Mapping
from typing import Final

from otel_zernel_receivers.otlp.config import CorsConfig

Headers = dict[str, str]
_ALWAYS_ALLOWED: Final = frozenset(
    {"accept", "content-type", "content-length", "content-language", "origin", "x-requested-with"}
)


class Cors:
    """Answers browsers. Without allowed origins it answers nothing."""

    def __init__(self, config: CorsConfig | None) -> None:
        self._config = config or CorsConfig()
        patterns = (re.escape(origin.lower()).replace(r"\*", ".*") for origin in self._config.allowed_origins)
        self._origins = re.compile("|".join(patterns)) if self._config.allowed_origins else None
        self._headers = _ALWAYS_ALLOWED | {name.lower() for name in self._config.allowed_headers}

    @property
    def is_on(self) -> bool:
        return self._origins is not None

    def headers(self, request: Mapping[str, str]) -> Headers:
        """The headers of the answer to a request."""
        origin = request.get("origin", "")
        if not self.is_on or not self._allows(origin):
            return {"vary": "Origin"} if self.is_on else {}
        exposed = ", ".join(self._config.exposed_headers)
        headers = {"access-control-allow-origin": origin, "vary": "Origin"}
        return headers | ({"access-control-expose-headers": exposed} if exposed else {})

    def preflight(self, request: Mapping[str, str]) -> Headers | None:
        """The headers of the answer to a preflight request; None if the request is not one."""
        if not self.is_on or "access-control-request-method" not in request:
            return None
        wanted = [name.strip().lower() for name in request.get("access-control-request-headers", "").split(",")]
        names = list(filter(None, wanted))
        method = request["access-control-request-method"] == "POST"
        if not method or not self._allows(request.get("origin", "")) or not self._allows_headers(names):
            return {"vary": "Origin"}
        headers = self.headers(request) | {"access-control-allow-methods": "POST"}
        if names:
            headers["access-control-allow-headers"] = ", ".join(names)
        if self._config.max_age:
            headers["access-control-max-age"] = str(self._config.max_age)
        return headers

    def _allows(self, origin: str) -> bool:
        return bool(origin and self._origins and self._origins.fullmatch(origin.lower()))

    def _allows_headers(self, names: list[str]) -> bool:
        return "*" in self._headers or self._headers.issuperset(names)
