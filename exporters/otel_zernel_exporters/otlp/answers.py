"""The answer of an OTLP server over HTTP: success, a partial success, or the reason of a failure."""

import json
import re
from collections.abc import Container
from contextlib import suppress

from google.protobuf import json_format
from google.protobuf.message import DecodeError
from google.rpc.status_pb2 import Status

from otel_zernel.component import Context
from otel_zernel.errors import Correctable, Permanent, Retryable
from otel_zernel.text import shown_url
from otel_zernel_exporters.otlp.signals import OtlpSignal, Response
from otel_zernel_libraries.clients.proxies import advice as proxy_advice
from otel_zernel_libraries.clients.web_answers import (
    LONGEST_MESSAGE,
    WebAnswer,
    is_setting,
    is_web_page,
    redirect_advice,
    redirect_target,
    status_advice,
)

CONTENT_TYPES = {"proto": "application/x-protobuf", "json": "application/json"}

_RETRYABLE = frozenset({429, 502, 503, 504})  # https://opentelemetry.io/docs/specs/otlp/#failures-1
_NO_SUCH_PATH = frozenset({404, 405})
_UNAUTHENTICATED = frozenset({401, 403})
_NO_PATH = (
    "; this path does not accept OTLP: set the endpoint to the URL before /v1/metrics, such as http://host:4318 for a"
    " collector, http://host:9090/api/v1/otlp for Prometheus, https://host/otlp for Grafana,"
    " http://host:8428/opentelemetry for VictoriaMetrics"
)
_OUT_OF_ORDER = re.compile(r"out.of.order (native )?(sample|histogram)|sample.out.of.order", re.IGNORECASE)
_TOO_OLD = re.compile(r"too old sample|sample.timestamp.too.old", re.IGNORECASE)  # with out_of_order_time_window
_KEEPS_THE_REST = re.compile(r"err-mimir|\buser=")
"""Words of Mimir, Grafana Cloud and Cortex, which store the other samples of a refused request."""


class HttpAnswer(WebAnswer):
    """The answer of an OTLP server, or of a server in its place."""

    __slots__ = ()

    @property
    def refuses_late(self) -> bool:
        """Whether the server has newer samples of a series, which may be `target_info`."""
        return self.wants_order or self._refuses_samples(_TOO_OLD)

    @property
    def wants_order(self) -> bool:
        """Whether the server accepts the samples of a series in the order of time only."""
        return self._refuses_samples(_OUT_OF_ORDER)

    def _refuses_samples(self, words: re.Pattern[str]) -> bool:
        return self.status >= 400 and words.search(self.message) is not None  # Prometheus 3.5 answers 500

    @property
    def has_stored_nothing(self) -> bool:
        """Whether the server has refused a request as a whole, as Prometheus does. Thanos, with its 409, does not."""
        return self.status != 409 and _KEEPS_THE_REST.search(self.message) is None

    def response(self, signal: OtlpSignal, context: Context) -> Response | None:
        """The OTLP response to an accepted request; None for another body, which some proxies send."""
        try:
            if self.content_type == CONTENT_TYPES["json"] and self.body:
                return json_format.Parse(self.body, signal.response(), ignore_unknown_fields=True)
            if self.content_type == CONTENT_TYPES["proto"]:
                return signal.response.FromString(self.body)
        except (DecodeError, json_format.ParseError, ValueError, RecursionError) as error:
            context.logger.warning(
                "The server accepted the %s, but its response is not valid OTLP: %s", signal.items, str(error)[:200]
            )
        return None

    def failure(
        self, url: str, now_ns: int, permanent: Container[int], advice: str, proxy: str | None = None
    ) -> Retryable | Permanent:
        """The error of a request that was not accepted. `permanent` statuses drop the batch.

        `advice` ends the sentence if credentials were refused. `proxy` names the proxy that may have answered.
        """
        sentence, after = self.sentence(url), self.retry_after(now_ns)
        through = proxy_advice(proxy) if not self._is_otlp else ""
        if self.refuses_late or self.refuses_native_histograms:
            return Permanent(sentence)
        if self.status in _RETRYABLE:
            return Retryable(sentence + through, after)
        words = f"{sentence}{self._advice(advice)}{through}"
        if self.status in permanent and not is_setting(self.status, self.message):
            return Permanent(words)
        return Correctable(words, str(self.status), after)

    def _advice(self, credentials: str) -> str:
        """The setting to change, as the end of a sentence."""
        if 300 <= self.status < 400:
            login = redirect_advice(self.location)
            place = f" to {shown_url(self.location)[:LONGEST_MESSAGE]}" if login else ""
            return f"{place}; redirects are not followed{login or redirect_target(self.location)}"
        if self.status in _UNAUTHENTICATED:
            return credentials
        is_explained = self._is_otlp and self.status not in _NO_SUCH_PATH  # Grafana answers 404 in JSON, too
        if is_explained and not is_setting(self.status, self.message):
            return ""
        return status_advice(self.status, self.message, no_path=_NO_PATH)

    @property
    def _is_otlp(self) -> bool:
        """Whether the body is the error of an OTLP server."""
        return self.content_type in CONTENT_TYPES.values() and bool(self.body)

    def no_otlp(self, url: str, proxy: str | None) -> Correctable | None:
        """The error if a web page answers, with whatever status: a login or a proxy has taken the request."""
        if not self.is_success or not is_web_page(self.content_type, self.body):
            return None
        return Correctable(
            f"{self.sentence(url)} answers, no OTLP server; set the endpoint to the OTLP address{proxy_advice(proxy)}",
            str(self.status),
        )

    def _text(self) -> str:
        """The error message of the server: that of its rpc Status, else the beginning of the body."""
        message = super()._text()
        with suppress(DecodeError, ValueError, AttributeError, RecursionError):
            if self.content_type == CONTENT_TYPES["json"]:
                message = str(json.loads(self.body).get("message", message))
            if self.content_type == CONTENT_TYPES["proto"]:
                message = Status.FromString(self.body).message
        return message
