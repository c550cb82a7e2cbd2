"""The proxy that the environment sets for an endpoint. Messages name it, since it answers in place of the server."""

from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from otel_zernel.text import shown_url

_GRPC: Final = ("grpc_proxy", "https_proxy", "http_proxy")
"""https://github.com/grpc/grpc/blob/master/doc/environment_variables.md"""


def http_proxy(url: str) -> str | None:
    """`the proxy http://proxy:3128 (HTTP_PROXY)`; None if requests to the URL use no proxy."""
    from urllib.request import getproxies_environment, proxy_bypass  # with an HTTP client, which takes 20 ms

    parts, proxies = urlsplit(url), getproxies_environment()
    if proxy_bypass(parts.netloc.rpartition("@")[2]):
        return None
    scheme = parts.scheme if parts.scheme in proxies else "all"
    return _named(f"{scheme}_proxy", proxies[scheme]) if scheme in proxies else None


def grpc_proxy(host: str, environ: Mapping[str, str]) -> str | None:
    """As `http_proxy`, by the rules of gRPC, which reads the variables in lower case only."""
    for name in _GRPC:
        if proxy := environ.get(name):
            bypassed = environ.get("no_grpc_proxy") or environ.get("no_proxy") or ""
            excluded = any(part.strip() and host.endswith(part.strip().lstrip("*")) for part in bypassed.split(","))
            return None if excluded else _named(name, proxy)
    return None


def advice(proxy: str | None) -> str:
    """The end of a message about a failed request; empty without a proxy."""
    if proxy is None:
        return ""
    return f"; the connection goes through {proxy}: correct that variable, or add the host to NO_PROXY"


def _named(variable: str, proxy: str) -> str:
    return f"the proxy {shown_url(proxy)} ({variable.upper()})"
