"""The rate of requests by client address: a bucket of tokens for each, in a table with a bound."""

import ipaddress
import math
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

_MOST_ADDRESSES: Final = 10_000
"""Buckets. Beyond, the one that is unused longest is forgotten; its address starts with a full one."""
_NETWORK: Final = 64
"""Bits of an IPv6 address that identify a client: it may choose the others."""


class Rates:
    """Who may send how much. Times are monotonic, in s."""

    def __init__(self, rate: float, burst: int, monotonic: Callable[[], float]) -> None:
        """`rate` is in requests a second."""
        self._rate = rate
        self._burst = burst
        self._monotonic = monotonic
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """The tokens and the time of the last request, by client. The longest unused one is first."""

    def wait(self, address: str) -> int:
        """Counts a request. 0 if it may be answered, else the whole seconds after which the next one may be."""
        client, now = _client(address), self._monotonic()
        tokens, last = self._buckets.pop(client, (float(self._burst), now))
        tokens = min(self._burst, tokens + (now - last) * self._rate)
        is_allowed = tokens >= 1
        self._buckets[client] = (tokens - is_allowed, now)
        if len(self._buckets) > _MOST_ADDRESSES:
            self._buckets.popitem(last=False)
        return 0 if is_allowed else math.ceil((1 - tokens) / self._rate)


def _client(address: str) -> str:
    """The network of an IPv6 address, and any other address as it is."""
    if ":" not in address:
        return address
    parsed = ipaddress.IPv6Address(address.partition("%")[0])
    if parsed.ipv4_mapped:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.IPv6Network((parsed, _NETWORK), strict=False))
