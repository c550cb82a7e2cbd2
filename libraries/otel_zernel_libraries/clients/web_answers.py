"""Answers of servers, also of those that are not the wanted one: web pages, redirects to a login, a port with TLS."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from html import unescape
from typing import TYPE_CHECKING, Final, Self

from otel_zernel.text import shown_url, without_query
from otel_zernel_libraries.clients.posting import beginning_of
from otel_zernel_libraries.clients.waits import refuses_native_histograms, retry_after

if TYPE_CHECKING:  # importing httpx takes 100 ms, and validation does not need it
    import httpx

LONGEST_MESSAGE: Final = 500
"""Characters of a server's message that are shown."""

_TITLE: Final = re.compile(r"<title[^>]*>(.*?)</title>", re.IGNORECASE | re.DOTALL)
_LOGIN: Final = re.compile(r"log[_-]?in|sign[_-]?in|oauth|openid|saml|sso\b|/auth", re.IGNORECASE)
# The words begin the message: what follows may have names and values of the data.
_EXPECTS_TLS: Final = re.compile(r"[\w \"]{0,50}HTTP request (was sent )?to (an )?HTTPS", re.IGNORECASE)
_NO_COMPRESSION: Final = re.compile(
    r"(un(supported|known|recognized|acceptable)|invalid) \W?(content.|grpc.)?(encoding|compression)"
    r"|(grpc: )?decompressor is not installed|(can't|cannot) find decompressor"
    r"|(content is compressed|compression|content.encoding|grpc.encoding)\b[^{]{0,60}"
    r"(n't|\bnot) (be )?(supported|accepted|enabled|available)"
    r"|compression algorithm \S+ is disabled",
    re.IGNORECASE,
)
_UNKNOWN_PATH: Final = re.compile(
    r'(remoteAddr: "[^"]*"; requestURI: \S*; )?unsupported path requested|\W*(error\W+)?no handler found for uri',
    re.IGNORECASE,
)
"""The words of VictoriaMetrics and Elasticsearch, which answer 400 in place of 404."""
_EXPECTS_CERTIFICATE: Final = re.compile(r"no required SSL certificate|SSL certificate error", re.IGNORECASE)
"""The words of nginx."""
_PAGE: Final = "the web page"
_UNTITLED: Final = "a web page"


@dataclass(frozen=True, slots=True)
class WebAnswer:
    """The answer of a server to a posted request."""

    status: int
    phrase: str
    headers: Mapping[str, str]
    """By their names in lower case."""
    location: str
    """The target of a redirect."""
    body: bytes
    """The beginning of the body."""

    @classmethod
    async def receive(cls, response: "httpx.Response") -> Self:
        """Reads the beginning of the body."""
        location, body = response.extensions.get("location", ""), await beginning_of(response)
        return cls(response.status_code, response.reason_phrase[:LONGEST_MESSAGE], response.headers, location, body)

    @property
    def content_type(self) -> str:
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300

    @property
    def refuses_native_histograms(self) -> bool:
        """Whether the server takes no native histograms."""
        return refuses_native_histograms(self.status, self.message)

    @property
    def message(self) -> str:
        """The words of the server on one line: the title of a web page, else its error or the beginning of the body."""
        text = self._text()
        if is_web_page(self.content_type, self.body):
            text = page_title(text)
        return " ".join(text.split())[:LONGEST_MESSAGE]

    def _text(self) -> str:
        return self.body.decode(errors="replace")

    def sentence(self, url: str) -> str:
        """The answer in words, with the URL of the request but without the secrets in it."""
        return f"{shown_url(url)}: {self.status} {self.phrase}: {without_query(self.message, url)}".rstrip(": ")

    def retry_after(self, now_ns: int) -> float | None:
        """Seconds to wait before the next request. None if the server does not say it."""
        return retry_after(self.headers.get("retry-after", ""), now_ns)


def is_web_page(content_type: str, body: bytes) -> bool:
    """Whether a page for people answers."""
    return content_type == "text/html" or is_document(body)


def is_document(body: bytes) -> bool:
    """Whether a body is a page for people, whatever its type."""
    return body[:256].lstrip().lower().startswith((b"<!doctype html", b"<html"))


def page_title(text: str) -> str:
    """The words of a web page that a person would read first: `the web page "404 Not Found"`."""
    title = _TITLE.search(text)
    return f'{_PAGE} "{unescape(title[1]).strip()}"' if title else _UNTITLED


def _is_title(message: str) -> bool:
    """Whether a message is the result of `page_title`."""
    return message.startswith((f'{_PAGE} "', _UNTITLED))


def _expects_tls(message: str) -> bool:
    return _EXPECTS_TLS.match(message) is not None


def refuses_compression(message: str) -> bool:
    """Whether a server says that it does not have the compression of a request."""
    return _NO_COMPRESSION.match(message) is not None


def redirect_target(location: str) -> str:
    """The setting to change after a redirect to another address; empty if the address is not known."""
    return f"; set the endpoint to {shown_url(location)[:LONGEST_MESSAGE]}" if location else ""


def redirect_advice(location: str) -> str:
    """The settings to change after a redirect to a login; empty if the target is no login."""
    if not _LOGIN.search(location):
        return ""
    return (
        "; that is a login for people: set the endpoint to the OTLP address behind it, and the credentials in"
        " headers::authorization or auth::authenticator"
    )


def is_setting(status: int, message: str) -> bool:
    """Whether a 400 is about the endpoint, the compression or a proxy, and not about the data.

    A server of telemetry sends no page for people, whose title is in the message.
    """
    return status == 400 and (
        _is_title(message)
        or refuses_compression(message)
        or _expects_tls(message)
        or _UNKNOWN_PATH.match(message) is not None
    )


def status_advice(status: int, message: str, *, no_path: str) -> str:
    """The setting to change after an answer about the endpoint, a proxy or the format; empty for any other answer.

    `no_path` ends the sentence if nothing takes telemetry at the path.
    """
    if status in (400, 415) and refuses_compression(message):
        return "; the server does not take this compression: set compression: gzip or none"
    if status == 400 and _expects_tls(message):
        return "; the server expects TLS: write https:// in the endpoint"
    if status == 400 and _is_title(message) and _EXPECTS_CERTIFICATE.search(message):
        return "; the server requires a client certificate: set tls::cert_file and tls::key_file"
    if status in (404, 405) or is_setting(status, message):
        return no_path
    if status == 407:
        return "; the proxy requires credentials: write them into HTTPS_PROXY or HTTP_PROXY, http://user:password@proxy"
    if status == 415:
        return "; the server does not accept this format: try encoding: json, or compression: none"
    return ""
