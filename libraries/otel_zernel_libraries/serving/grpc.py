"""Services that every server of gRPC has: health, by which load balancers see that the server runs, and reflection.

By reflection, tools such as grpcurl learn the messages and call the receiver by hand. The messages are small enough to
be read and written without generated code:
https://github.com/grpc/grpc-proto/blob/master/grpc/health/v1/health.proto,
https://github.com/grpc/grpc-proto/blob/master/grpc/reflection/v1/reflection.proto; v1alpha has the same messages.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from google.protobuf.descriptor import FileDescriptor
from google.rpc.code_pb2 import Code

from otel_zernel.protobuf import encode_field, fields, first_string, text
from otel_zernel_libraries.serving.http2 import Call, Method
from otel_zernel_libraries.serving.requests.failures import RequestFailure, unknown, unserved

HEALTH: Final = "grpc.health.v1.Health"
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
        return {f"/{HEALTH}/Check": _Check(self), f"/{HEALTH}/Watch": _Watch(self)}


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
            self._health.watches = {watch for watch in self._health.watches if not watch.closed}
        if len(self._health.watches) >= _MOST_WATCHES:
            raise unserved("too many clients watch the health; use Check")  # clients then go on without a watch
        known = first_string(message, 1) in self._health.services
        call.send(self._health.status if known else _SERVICE_UNKNOWN)
        self._health.watches.add(call)


REFLECTION: Final = ("grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection")
_BY_FILE, _BY_SYMBOL, _LIST_SERVICES = 3, 4, 7
"""The fields of a `ServerReflectionRequest`."""
_ORIGINAL_REQUEST, _FILES, _SERVICES, _ERROR = 2, 4, 6, 7
"""The fields of a `ServerReflectionResponse`."""


class ReflectionService:
    """Describes services and their messages."""

    streams = True

    def __init__(self, services: Iterable[str], files: Iterable[FileDescriptor]) -> None:
        """`files` declare the services."""
        self._services = (*services, *REFLECTION)
        self._files: dict[str, FileDescriptor] = {}
        for file in files:
            self._add(file)

    def _add(self, file: FileDescriptor) -> None:
        if file.name not in self._files:
            self._files[file.name] = file
            for imported in file.dependencies:
                self._add(imported)

    def methods(self) -> Mapping[str, Method]:
        """The methods by path."""
        return dict.fromkeys((f"/{name}/ServerReflectionInfo" for name in REFLECTION), self)

    def begin(self, call: Call) -> None:
        """What the service describes is public."""

    def received(self, call: Call, message: bytes) -> None:
        call.send(encode_field(_ORIGINAL_REQUEST, message) + self._answer(message))

    def ended(self, call: Call) -> None:
        call.succeed()

    def failed(self, failure: RequestFailure) -> None:
        """Only exports are counted."""

    def _answer(self, request: bytes) -> bytes:
        for number, value in fields(request):
            if number == _LIST_SERVICES:
                return encode_field(
                    _SERVICES, b"".join(encode_field(1, encode_field(1, name)) for name in self._services)
                )
            if number in (_BY_FILE, _BY_SYMBOL):
                return self._describe(self._find(text(value), by_name=number == _BY_FILE), text(value))
        return _error(Code.UNIMPLEMENTED, "only files, symbols and the list of services are described")

    def _find(self, name: str, *, by_name: bool) -> FileDescriptor | None:
        if by_name:
            return self._files.get(name)
        return next((file for file in self._files.values() if _declares(file, name)), None)

    def _describe(self, file: FileDescriptor | None, name: str) -> bytes:
        if file is None:
            return _error(Code.NOT_FOUND, f"there is no {name:.100}")
        return encode_field(_FILES, encode_field(1, file.serialized_pb))


def _declares(file: FileDescriptor, symbol: str) -> bool:
    """Whether the file declares a service or message, or a member of one."""
    prefix = f"{file.package}."
    own = symbol.removeprefix(prefix).split(".")[0]
    return symbol.startswith(prefix) and (own in file.services_by_name or own in file.message_types_by_name)


def _error(code: int, message: str) -> bytes:
    return encode_field(_ERROR, encode_field(1, code) + encode_field(2, message))


def with_standard_services(
    methods: Mapping[str, Method], health: HealthService, services: Iterable[str], files: Iterable[FileDescriptor]
) -> Callable[[Mapping[str, str]], Method]:
    """Finds a method by the headers of its call: one of `methods`, by path, or one of health and reflection.

    Reflection describes `services`, which `files` declare. The result raises `RequestFailure` for an unknown path.
    """
    reflection = ReflectionService((*services, HEALTH), files)
    known = {**health.methods(), **reflection.methods(), **methods}

    def find(headers: Mapping[str, str]) -> Method:
        path = headers.get(":path", "")
        if method := known.get(path):
            return method
        raise unserved(f"there is no method {path:.100}")

    return find
