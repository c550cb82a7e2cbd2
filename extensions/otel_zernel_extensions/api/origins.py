"""Protection from web pages: the checks of Host and Origin.

A page of another site can make its name point at this machine (DNS rebinding), and can send requests and open
WebSockets to localhost. Both reveal themselves by these headers, which a page cannot change.
"""

import ipaddress
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final
from urllib.parse import urlsplit

from otel_zernel_libraries.serving.api.answers import ApiError
from otel_zernel_libraries.serving.cors import Cors

_READING: Final = ("GET", "HEAD", "OPTIONS")
"""A page of another origin cannot read the answers to these, and they change nothing."""
_HOST: Final = re.compile(r"(\[[^\]]*\]|[^:\[\],@/]*)(:\d*)?")
"""A name or an address with a port. Two headers are joined by a comma, and are refused."""

_LONGEST_ADDRESS: Final = 80
"""Characters: 45 of IPv6 with an IPv4 part, and the name of an interface."""


class Origins:
    """Which names of this server, and which pages, requests may have."""

    def __init__(self, hosts: Iterable[str], cors: Cors, *, any_host: bool) -> None:
        """`hosts` are names, with `*` for any characters. `any_host` allows all."""
        patterns = [re.escape(host.lower()).replace(r"\*", ".*") for host in hosts if host]
        self._hosts = re.compile("|".join([*patterns, "localhost", r".*\.localhost"]))
        self._any_host = any_host
        self._cors = cors

    def check(self, kind: str, method: str, headers: Mapping[str, str]) -> None:
        """Raises `ApiError` if a foreign page may have caused the request."""
        host = headers.get("host", "")
        if not self._allows_host(host):
            name = f"{host_name(host) if _HOST.fullmatch(host) else host:.100}"
            raise ApiError(421, f"this server is not called {name}; add the name to allowed_hosts of the api extension")
        origin = headers.get("origin", "")
        is_harmless = kind == "http" and method in _READING
        if origin and not is_harmless and not _is_same(origin, host) and not self._cors.allows(origin):
            raise ApiError(
                403, f"pages of {origin:.100} may not do this; add it to cors::allowed_origins of the api extension"
            )

    def is_foreign(self, headers: Mapping[str, str]) -> bool:
        """Whether the request is of a page that this server has not served, also if its origin is allowed."""
        origin = headers.get("origin", "")
        return bool(origin) and not _is_same(origin, headers.get("host", ""))

    def _allows_host(self, host: str) -> bool:
        """Requests without a host come from no browser."""
        name = host_name(host)
        is_known = not host or _is_address(name) or bool(self._hosts.fullmatch(name))
        return self._any_host or (is_known and bool(_HOST.fullmatch(host)))


def host_name(host: str) -> str:
    """The name or address in a Host header, in lower case, without the port and the final dot."""
    name = host.partition("]")[0].lstrip("[") if host.startswith("[") else host.partition(":")[0]
    return name.lower().removesuffix(".")


def _is_address(name: str) -> bool:
    return len(name) <= _LONGEST_ADDRESS and _parses(name)


@lru_cache(maxsize=64)
def _parses(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _is_same(origin: str, host: str) -> bool:
    """Whether the page comes from this server. A proxy may have changed the scheme, but keeps the host."""
    try:
        parts = urlsplit(origin.lower())
        port = parts.port
    except ValueError:
        return False
    default = {"http": 80, "https": 443}.get(parts.scheme)
    if default is None:
        return False
    place = parts.netloc.removesuffix(f":{port}") if port == default else parts.netloc
    wanted = host.lower()
    return place == (wanted.removesuffix(f":{default}") if wanted.endswith(f":{default}") else wanted)
