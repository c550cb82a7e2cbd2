"""How long a server asks its clients to wait. Servers are not trusted: each wait has an upper limit."""

import re
from contextlib import suppress
from email.utils import parsedate_to_datetime
from typing import Final

from google.protobuf.message import DecodeError
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status

_NO_NATIVE: Final = re.compile(r"native histogram.{0,40}(disabled|not enabled|not supported)", re.IGNORECASE)


def refuses_native_histograms(status: int, message: str) -> bool:
    """Whether the server takes no native histograms. Prometheus answers 500 then, and stores nothing of a request."""
    return status >= 300 and _NO_NATIVE.search(message) is not None


LONGEST_WAIT = 300.0
"""Seconds. A server that asks for more is asked again after this time. The delivery has the same limit."""


def retry_after(value: str, now_ns: int) -> float | None:
    """Seconds of `Retry-After`, a number of seconds or a date (RFC 9110, 10.2.3); None without a valid one."""
    value = value.strip()
    if value.isdecimal():
        return min(float(value), LONGEST_WAIT)
    with suppress(ValueError, OverflowError):  # OverflowError: a date whose zone leads out of the years 1 to 9999
        return min(max(0.0, parsedate_to_datetime(value).timestamp() - now_ns / 1e9), LONGEST_WAIT)
    return None


def retry_info(details: bytes) -> float | None:
    """Seconds of the `RetryInfo` in `grpc-status-details-bin`; None without one."""
    info = RetryInfo()
    with suppress(DecodeError):
        if any(detail.Unpack(info) for detail in Status.FromString(details).details):
            seconds: float = info.retry_delay.seconds + info.retry_delay.nanos / 1e9
            return min(max(0.0, seconds), LONGEST_WAIT)
    return None
