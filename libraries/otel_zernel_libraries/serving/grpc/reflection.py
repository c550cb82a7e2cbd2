"""The service `grpc.reflection`, by which tools such as grpcurl learn the messages and call the receiver by hand.

https://github.com/grpc/grpc-proto/blob/master/grpc/reflection/v1/reflection.proto; v1alpha has the same messages.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from google.protobuf.descriptor import FileDescriptor
from google.rpc.code_pb2 import Code

from otel_zernel.protobuf.fields import encode_field, fields, text
from otel_zernel_libraries.serving.http2 import Call, Method
from otel_zernel_libraries.serving.requests.failures import RequestFailure

NAMES: Final = ("grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection")
_BY_FILE, _BY_SYMBOL, _LIST_SERVICES = 3, 4, 7
"""The fields of a `ServerReflectionRequest`."""
_ORIGINAL_REQUEST, _FILES, _SERVICES, _ERROR = 2, 4, 6, 7
"""The fields of a `ServerReflectionResponse`."""


class ReflectionService:
    """Describes services and their messages."""

    streams = True

    def __init__(self, services: Iterable[str], files: Iterable[FileDescriptor]) -> None:
        """`files` declare the services."""
        self._services = (*services, *NAMES)
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
        return dict.fromkeys((f"/{name}/ServerReflectionInfo" for name in NAMES), self)

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
