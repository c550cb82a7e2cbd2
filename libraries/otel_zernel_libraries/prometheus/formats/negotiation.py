"""The formats of a page, and the choice of one for a scraper."""

from dataclasses import dataclass
from email.message import Message

_PROTOBUF, _MESSAGE = "application/vnd.google.protobuf", "io.prometheus.client.MetricFamily"
_UTF8 = "allow-utf-8"


@dataclass(frozen=True, slots=True)
class Format:
    """The Prometheus text format, OpenMetrics 1.0, or Prometheus' protobuf format."""

    openmetrics: bool = False
    protobuf: bool = False
    """Messages `io.prometheus.client.MetricFamily`, each after its length. The only format with native histograms."""
    utf8: bool = False
    """The scraper accepts names of any UTF-8 characters, in quotes."""

    @property
    def content_type(self) -> str:
        """The Content-Type header of this format."""
        escaping = f"; escaping={_UTF8}" if self.utf8 else ""
        if self.protobuf:
            return f"{_PROTOBUF}; proto={_MESSAGE}; encoding=delimited{escaping}"
        if self.openmetrics:
            return f"application/openmetrics-text; version=1.0.0; charset=utf-8{escaping}"
        return f"text/plain; version={'1.0.0' if self.utf8 else '0.0.4'}; charset=utf-8{escaping}"


def negotiate(accept: str, *, openmetrics: bool = True) -> Format:
    """The supported format with the highest `q` in an Accept header. Among equals, the first one wins.

    If the header names no supported format, the result is the text format. If `openmetrics` is false, OpenMetrics is
    not supported.

    Prometheus 3 says of its text formats alone that it takes UTF-8 names: that counts for protobuf, too.
    """
    best, best_weight = Format(), 0.0
    takes_utf8 = f"escaping={_UTF8}" in accept
    for media_range in accept.split(","):
        offered = _format(media_range, takes_utf8)
        if offered and (openmetrics or not offered[0].openmetrics) and offered[1] > best_weight:
            best, best_weight = offered
    return best


def _format(media_range: str, takes_utf8: bool) -> tuple[Format, float] | None:
    """The format that one media range of an Accept header means, and its weight.

    `takes_utf8`: whether the scraper takes UTF-8 names in some format.
    """
    header = Message()
    header["content-type"] = media_range.strip()
    media_type = header.get_content_type()
    escaping = header.get_param("escaping")
    utf8 = escaping == _UTF8
    version = header.get_param("version")
    weight = _weight(str(header.get_param("q", "1")))
    if media_type == _PROTOBUF:
        is_known = header.get_param("proto") == _MESSAGE and header.get_param("encoding") == "delimited"
        return (Format(protobuf=True, utf8=utf8 or (escaping is None and takes_utf8)), weight) if is_known else None
    if media_type == "application/openmetrics-text" and version in (None, "1.0.0"):
        return Format(openmetrics=True, utf8=utf8), weight
    if media_type == "text/plain" and media_range.strip():
        return Format(utf8=utf8 and version == "1.0.0"), weight
    return None


def _weight(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


def accepts_gzip(accept_encoding: str) -> bool:
    """Whether an Accept-Encoding header allows gzip."""
    for coding in accept_encoding.split(","):
        name, _, parameter = coding.partition(";")
        if name.strip().lower() == "gzip":
            return _weight(parameter.strip().lower().removeprefix("q=") or "1") > 0
    return False
