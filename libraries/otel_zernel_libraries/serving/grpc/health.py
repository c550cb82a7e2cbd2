"""The service `grpc.health.v1.Health`, by which load balancers see that the server runs.

https://github.com/grpc/grpc-proto/blob/master/grpc/health/v1/health.proto. The two messages are small enough to be read
and written by hand.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from otel_zernel.protobuf.fields import first_string
from otel_zernel_libraries.serving.http2 import Call, Method
from otel_zernel_libraries.serving.requests.failures import RequestFailure, unknown, unserved

NAME: Final = "grpc.health.v1.Health"
_STATUS: Final = b"\x08"
"""Field 1, a varint."""
SERVING: Final = _STATUS + b"\x01"
NOT_SERVING: Final = _STATUS + b"\x02"
_MOST_WATCHES: Final = 4096
"""Each one takes memory and room for requests as long as its client stays."""
_SERVICE_UNKNOWN: Final = _STATUS + b"\x03"


class HealthService:
    """Answers `SERVING` for the server (the empty name) and each of its services, until it stops."""

    def __init__(self, services: Iterable[str]) -> None:
        self.services = frozenset({"", *services})
        self.status = SERVING
        self.watches: set[Call] = set()

    def stop(self) -> None:
        """From now on the answer is `NOT_SERVING`."""
        self.status = NOT_SERVING
        for call in self.watches:
            call.succeed(NOT_SERVING)
        self.watches.clear()

    def methods(self) -> Mapping[str, Method]:
        """The methods by path."""
        return {f"/{NAME}/Check": _Check(self), f"/{NAME}/Watch": _Watch(self)}


class _Check:
    streams = False

    def __init__(self, health: HealthService) -> None:
        self._health = health

    def begin(self, call: Call) -> None:
        """Health needs no credentials."""

    def received(self, call: Call, message: bytes) -> None:
        service = first_string(message, 1)
        if service not in self._health.services:
            raise unknown(f"there is no service {service:.100}")
        call.succeed(self._health.status)

    def ended(self, call: Call) -> None:
        """`received` has answered."""

    def failed(self, failure: RequestFailure) -> None:
        """Only exports are counted."""


class _Watch(_Check):
    def received(self, call: Call, message: bytes) -> None:
        if len(self._health.watches) >= _MOST_WATCHES:
            self._health.watches = {other for other in self._health.watches if not other.closed}
        if len(self._health.watches) >= _MOST_WATCHES:
            raise unserved("too many clients watch the health; use Check")  # clients then go on without a watch
        known = first_string(message, 1) in self._health.services
        call.send(self._health.status if known else _SERVICE_UNKNOWN)
        self._health.watches.add(call)
