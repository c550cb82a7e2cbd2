"""CORS: which web pages of other origins may use a server. https://fetch.spec.whatwg.org/#http-cors-protocol"""

import re
from collections.abc import Mapping
from typing import Annotated, Final

from pydantic import Field

from otel_zernel.types import Section

Headers = dict[str, str]
_ALWAYS_ALLOWED: Final = frozenset(
    {"accept", "content-type", "content-length", "content-language", "origin", "x-requested-with"}
)


class CorsConfig(Section):
    """Web pages of other origins that may send requests and read the answers."""

    allowed_origins: list[str] = Field(default_factory=list)
    """`https://app.example.com`, with `*` for any characters. Empty switches CORS off."""
    allowed_headers: list[str] = Field(default_factory=list)
    """Request headers that pages may set besides Accept, Content-Type, Content-Length, Content-Language, Origin and
    X-Requested-With. `*` allows all."""
    exposed_headers: list[str] = Field(default_factory=list)
    """Response headers that pages may read."""
    max_age: Annotated[int, Field(ge=0)] = 0
    """Seconds for which browsers may remember the answer; 0 for their default of 5 s."""


class Cors:
    """Answers browsers. Without allowed origins it answers nothing."""

    def __init__(self, config: CorsConfig | None, methods: tuple[str, ...] = ("POST",)) -> None:
        """`methods` are those that pages may use."""
        self._config = config or CorsConfig()
        self._methods = methods
        patterns = (re.escape(origin.lower()).replace(r"\*", ".*") for origin in self._config.allowed_origins)
        self._origins = re.compile("|".join(patterns)) if self._config.allowed_origins else None
        self._headers = _ALWAYS_ALLOWED | {name.lower() for name in self._config.allowed_headers}

    @property
    def is_on(self) -> bool:
        return self._origins is not None

    def headers(self, request: Mapping[str, str]) -> Headers:
        """The headers of the answer to a request."""
        origin = request.get("origin", "")
        if not self.allows(origin):
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
        method = request["access-control-request-method"] in self._methods
        if not method or not self.allows(request.get("origin", "")) or not self._allows_headers(names):
            return {"vary": "Origin"}
        headers = self.headers(request) | {"access-control-allow-methods": ", ".join(self._methods)}
        if names:
            headers["access-control-allow-headers"] = ", ".join(names)
        if self._config.max_age:
            headers["access-control-max-age"] = str(self._config.max_age)
        return headers

    def allows(self, origin: str) -> bool:
        """Whether pages of this origin may use the server."""
        return bool(origin and self._origins and self._origins.fullmatch(origin.lower()))

    def _allows_headers(self, names: list[str]) -> bool:
        return "*" in self._headers or self._headers.issuperset(names)
