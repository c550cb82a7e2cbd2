"""The answer of a server to a request of remote write."""

import re
from collections.abc import Container
from typing import Final

from otel_zernel.errors import Correctable, Permanent, Retryable
from otel_zernel_libraries.clients.proxies import advice as proxy_advice
from otel_zernel_libraries.clients.proxies import http_proxy
from otel_zernel_libraries.clients.web_answers import (
    WebAnswer,
    is_document,
    is_setting,
    redirect_target,
    refuses_compression,
    status_advice,
)

_WRITTEN: Final = tuple(f"x-prometheus-remote-write-{kind}-written" for kind in ("samples", "histograms", "exemplars"))
_COUNT: Final = re.compile(r"[0-9]{1,18}")
_CONTENT: Final = frozenset({400, 409, 413, 422})
"""Statuses for a request with samples that the server does not take. 409 comes from Thanos."""
_LATE: Final = re.compile(r"(out.of.order|too old|duplicate) sample", re.IGNORECASE)
_UNAUTHENTICATED: Final = frozenset({401, 403})
_REASONS: Final = (
    ("out_of_order", re.compile(r"out.of.order", re.IGNORECASE)),
    ("duplicate", re.compile(r"duplicate sample", re.IGNORECASE)),
    ("too_old", re.compile(r"out of bounds|too old|too far in the past", re.IGNORECASE)),
    ("too_new", re.compile(r"too far in (the )?future", re.IGNORECASE)),
)
_NO_PATH: Final = (
    "; this path does not accept remote write: set the endpoint to http://host:9090/api/v1/write for Prometheus, which"
    " needs --web.enable-remote-write-receiver, or to http://host/api/v1/push for Mimir"
)


class WriteAnswer(WebAnswer):
    """The answer of a server of remote write, or of a server in its place."""

    __slots__ = ()

    @property
    def written(self) -> tuple[int, int, int] | None:
        """The numbers of written samples, histograms and exemplars; None if the server does not report them."""
        values = [self.headers.get(name) for name in _WRITTEN]
        if not any(value is not None for value in values):
            return None
        samples, histograms, exemplars = (int(value) if value and _COUNT.fullmatch(value) else 0 for value in values)
        return samples, histograms, exemplars

    @property
    def is_victoria_metrics(self) -> bool:
        """Whether VictoriaMetrics answers. It is the only server with the header `X-Server-Hostname`."""
        return "x-server-hostname" in self.headers

    @property
    def is_of_another_server(self) -> bool:
        """Whether a login, a proxy or a port with TLS answers, and no server of remote write."""
        if self.written is not None:
            return False
        return is_setting(self.status, self.message) or (self.is_success and is_document(self.body))

    @property
    def rejects_samples(self) -> bool:
        """Whether the server does not take some of the samples. Some versions of Prometheus answer 500 to late ones."""
        return self.status in _CONTENT or (self.status >= 400 and _LATE.search(self.message) is not None)

    @property
    def reason(self) -> str:
        """Why samples were rejected, in a word for `zernel.dropped_items`."""
        return next((name for name, words in _REASONS if words.search(self.message)), "rejected")

    def failure(self, url: str, now_ns: int, permanent: Container[int], advice: str) -> Retryable | Permanent:
        """The error of a request that was not accepted. `permanent` statuses drop the batch.

        `advice` ends the sentence if credentials were refused.
        """
        sentence, after = self.sentence(url), self.retry_after(now_ns)
        through = proxy_advice(http_proxy(url))
        if self.status == 429 or self.status >= 500:
            return Retryable(sentence + through, after)
        words = f"{sentence}{self._advice(advice)}{through}"
        is_permanent = self.status in permanent and not self.is_of_another_server
        return Permanent(words) if is_permanent else Correctable(words, str(self.status), after)

    def _advice(self, credentials: str) -> str:
        """The setting to change, as the end of a sentence."""
        if 300 <= self.status < 400:
            return f"; redirects are not followed{redirect_target(self.location)}"
        if self.status in _UNAUTHENTICATED:
            return credentials
        if self.status == 415:
            return ""
        if self.is_success or refuses_compression(self.message):
            return _NO_PATH
        return status_advice(self.status, self.message, no_path=_NO_PATH)
