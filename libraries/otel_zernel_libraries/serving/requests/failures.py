"""Why a request is not accepted, and the answer to its sender.

The codes are those of OTLP (https://opentelemetry.io/docs/specs/otlp/#failures) and of the OpenTelemetry Collector.
Under pressure the answer is UNAVAILABLE and 503: older SDKs drop data on RESOURCE_EXHAUSTED and 429.
"""

import json
import math
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Final, Literal

from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.rpc.code_pb2 import Code
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status

from otel_zernel.authentication import ServerAuthenticator, Unauthenticated
from otel_zernel.errors import Refused, ZernelError

Encoding = Literal["proto", "json"]
CONTENT_TYPES: Final[Mapping[Encoding, str]] = {"proto": "application/x-protobuf", "json": "application/json"}

_LEAST_WAIT: Final = 1.0
"""Seconds. Retry-After has whole seconds, and 0 would mean at once."""
_LONGEST_TEXT: Final = 500
"""Characters. gRPC sends the message in a header, and clients limit headers to 8 KiB."""


class RequestFailure(ZernelError):
    """A request that is not accepted. `reason` names the situation in the receiver's metrics."""

    def __init__(
        self, message: str, reason: str, code: int, status: HTTPStatus, retry_after: float | None = None
    ) -> None:
        super().__init__(message[:_LONGEST_TEXT])
        self.reason = reason
        self.code = code
        """The code of gRPC: `google.rpc.Code`."""
        self.status = status
        """The status of HTTP."""
        self.retry_after = math.ceil(max(retry_after, _LEAST_WAIT)) if retry_after is not None else None
        """Whole seconds until the sender may try again; None if it must not."""

    def as_status(self) -> Status:
        """The `google.rpc.Status`, with `RetryInfo` if the sender may try again."""
        status = Status(code=self.code, message=str(self))
        if self.retry_after is not None:
            detail = AnyMessage()
            detail.Pack(RetryInfo(retry_delay=Duration(seconds=self.retry_after)))
            status.details.append(detail)
        return status

    def body(self, encoding: Encoding) -> bytes:
        """The `google.rpc.Status` as the body of an HTTP answer."""
        if encoding == "proto":
            return bytes(self.as_status().SerializeToString())
        status: dict[str, object] = {"code": self.code, "message": str(self)}
        if self.retry_after is not None:
            retry = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": f"{self.retry_after}s"}
            status["details"] = [retry]
        return json.dumps(status).encode()


def busy(refused: Refused) -> RequestFailure:
    """Downstream accepts nothing now. The sender tries again."""
    message = str(refused) or "the collector accepts nothing at the moment"
    return RequestFailure(
        message, "refused", Code.UNAVAILABLE, HTTPStatus.SERVICE_UNAVAILABLE, refused.after or _LEAST_WAIT
    )


def _kind(
    reason: str, code: int, status: HTTPStatus, retry_after: float | None = None
) -> Callable[[str], RequestFailure]:
    return lambda message: RequestFailure(message, reason, code, status, retry_after)


overloaded = _kind("overloaded", Code.UNAVAILABLE, HTTPStatus.SERVICE_UNAVAILABLE, _LEAST_WAIT)
"""The receiver holds too much. The sender tries again."""
too_slow = _kind("too_slow", Code.UNAVAILABLE, HTTPStatus.REQUEST_TIMEOUT, _LEAST_WAIT)
"""The request did not arrive in time. The sender may try again."""
rejected = _kind("rejected", Code.INTERNAL, HTTPStatus.INTERNAL_SERVER_ERROR)
"""Downstream will never accept the request."""
undecodable = _kind("undecodable", Code.INTERNAL, HTTPStatus.BAD_REQUEST)
"""The body is not OTLP, or not in the encoding that the headers name."""
unsupported = _kind("unsupported", Code.UNIMPLEMENTED, HTTPStatus.BAD_REQUEST)
"""The compression is unknown or switched off."""
too_large = _kind("too_large", Code.RESOURCE_EXHAUSTED, HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
"""The body exceeds the configured limit, as sent or decompressed."""
unauthenticated = _kind("unauthenticated", Code.UNAUTHENTICATED, HTTPStatus.UNAUTHORIZED)
"""The request has no valid credentials."""
unserved = _kind("unserved", Code.UNIMPLEMENTED, HTTPStatus.NOT_FOUND)
"""No pipeline of the receiver uses the signal, or the path is unknown."""
unknown = _kind("unknown", Code.NOT_FOUND, HTTPStatus.NOT_FOUND)
"""The request asks for a name that does not exist."""


def unexpected() -> RequestFailure:
    """The receiver has a fault, which is logged."""
    message = "the collector failed on this request; see its log"
    return RequestFailure(message, "error", Code.INTERNAL, HTTPStatus.INTERNAL_SERVER_ERROR)


async def check_credentials(authenticator: ServerAuthenticator, headers: Mapping[str, str]) -> None:
    """Raises `RequestFailure` if a request has no valid credentials."""
    try:
        await authenticator.authenticate(headers)
    except Unauthenticated as error:
        raise unauthenticated(str(error)) from error
