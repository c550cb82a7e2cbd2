"""The formats of a page, and which one a scraper asks for."""

from dataclasses import dataclass
from email.message import Message


@dataclass(frozen=True, slots=True)
class Format:
    """Prometheus's text format or OpenMetrics 1.0. With `utf8` the reader takes names of any characters, in quotes."""

    openmetrics: bool = False
    utf8: bool = False

    @property
    def content_type(self) -> str:
        """The header that says so."""
        escaping = "; escaping=allow-utf-8" if self.utf8 else ""
        if self.openmetrics:
            return f"application/openmetrics-text; version=1.0.0; charset=utf-8{escaping}"
        return f"text/plain; version={'1.0.0' if self.utf8 else '0.0.4'}; charset=utf-8{escaping}"


def negotiate(accept: str, *, openmetrics: bool = True) -> Format:
    """The format an Accept header likes best of ours, by its `q`, then by its order; the text format if it likes none.

    `openmetrics` says if OpenMetrics is on offer.
    """
    best, weight = Format(), 0.0
    for wanted in accept.split(","):
        found = _format(wanted)
        if found and (openmetrics or not found[0].openmetrics) and found[1] > weight:
            best, weight = found
    return best


def _format(wanted: str) -> tuple[Format, float] | None:
    header = Message()
    header["content-type"] = wanted.strip()
    kind = header.get_content_type()
    utf8 = header.get_param("escaping") == "allow-utf-8"
    version = header.get_param("version")
    weight = _weight(str(header.get_param("q", "1")))
    if kind == "application/openmetrics-text" and version in (None, "1.0.0"):
        return Format(openmetrics=True, utf8=utf8), weight
    if kind == "text/plain" and wanted.strip():
        return Format(utf8=utf8 and version == "1.0.0"), weight
    return None


def _weight(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


def accepts_gzip(accept_encoding: str) -> bool:
    """Whether an Accept-Encoding header allows gzip."""
    for wanted in accept_encoding.split(","):
        name, _, parameter = wanted.partition(";")
        if name.strip().lower() == "gzip":
            return _weight(parameter.strip().lower().removeprefix("q=") or "1") > 0
    return False
