"""Answers of servers that are no OTLP servers: web pages, redirects to a login, Prometheus, a port with TLS."""

import re
from html import unescape
from typing import Final

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
_NO_OTLP: Final = (
    "; this path does not accept OTLP: set the endpoint to the URL before /v1/metrics, such as http://host:4318 for a"
    " collector, http://host:9090/api/v1/otlp for Prometheus, https://host/otlp for Grafana"
)


def is_web_page(content_type: str, body: bytes) -> bool:
    """Whether a page for people answers."""
    return content_type == "text/html" or body[:256].lstrip().lower().startswith((b"<!doctype html", b"<html"))


def page_title(text: str) -> str:
    """The words of a web page that a person would read first: `the web page "404 Not Found"`."""
    title = _TITLE.search(text)
    return f'the web page "{unescape(title[1]).strip()}"' if title else "a web page"


def refuses_compression(message: str) -> bool:
    """Whether a server says that it does not have the compression of a request."""
    return _NO_COMPRESSION.match(message) is not None


def redirect_advice(location: str) -> str:
    """The settings to change after a redirect to a login; empty if the target is no login."""
    if not _LOGIN.search(location):
        return ""
    return (
        "; that is a login for people: set the endpoint to the OTLP address behind it, and the credentials in"
        " headers::authorization or auth::authenticator"
    )


def is_setting(status: int, message: str) -> bool:
    """Whether a 400 is about the endpoint or the compression, and not about the data."""
    return status == 400 and (refuses_compression(message) or _EXPECTS_TLS.match(message) is not None)


def status_advice(status: int, message: str) -> str:
    """The setting to change after an answer about the endpoint, a proxy or the format; empty for any other answer."""
    if status in (400, 415) and refuses_compression(message):
        return "; the server does not take this compression: set compression: gzip or none"
    if status == 400 and _EXPECTS_TLS.match(message):
        return "; the server expects TLS: write https:// in the endpoint"
    if status in (404, 405):
        return _NO_OTLP
    if status == 407:
        return "; the proxy requires credentials: write them into HTTPS_PROXY or HTTP_PROXY, http://user:password@proxy"
    if status == 415:
        return "; the server does not accept this format: try encoding: json, or compression: none"
    return ""
