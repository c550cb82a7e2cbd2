"""How long a server asks its clients to wait. Servers are not trusted: each wait has an upper limit."""

from contextlib import suppress
from email.utils import parsedate_to_datetime

from google.protobuf.message import DecodeError
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status

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
