"""The formats: how a request asks for them, and how an answer names its own."""

from collections.abc import Sequence
from email.message import Message
from typing import Literal

from otel_zernel_receivers.prometheus.config.scrape import ScrapeProtocol
from otel_zernel_receivers.prometheus.pages.page import NotAPage

PageFormat = Literal["text", "openmetrics", "protobuf"]

_PROTOBUF = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited"
_PROTOCOLS: dict[ScrapeProtocol, tuple[PageFormat, str]] = {
    "PrometheusProto": ("protobuf", _PROTOBUF),
    "OpenMetricsText1.0.0": ("openmetrics", "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8"),
    "OpenMetricsText0.0.1": ("openmetrics", "application/openmetrics-text;version=0.0.1"),
    "PrometheusText1.0.0": ("text", "text/plain;version=1.0.0;escaping=allow-utf-8"),
    "PrometheusText0.0.4": ("text", "text/plain;version=0.0.4"),
}
"""The format of each protocol, and its type in the Accept header."""


def accept_header(protocols: Sequence[ScrapeProtocol]) -> str:
    """The Accept header for these formats, the best first, with any other as the last resort."""
    weighted = [f"{_PROTOCOLS[name][1]};q=0.{len(protocols) - number}" for number, name in enumerate(protocols)]
    return ",".join([*weighted, "*/*;q=0.01"])


def format_of(content_type: str, fallback: ScrapeProtocol | None) -> PageFormat:
    """The format that an answer names. Unknown types are read as `fallback`, else as text. Raises `NotAPage`."""
    header = Message()
    header["content-type"] = content_type or "text/plain"
    match header.get_content_type():
        case "application/openmetrics-text":
            return "openmetrics"
        case "application/vnd.google.protobuf":
            if str(header.get_param("encoding", "delimited")) != "delimited":
                raise NotAPage(f"protobuf that is not delimited: {content_type}")
            return "protobuf"
        case "text/html" if fallback is None:
            raise NotAPage("the answer is a web page (text/html), not metrics; check metrics_path and the port")
        case "text/plain" if content_type:
            return "text"
    return _PROTOCOLS[fallback][0] if fallback else "text"
