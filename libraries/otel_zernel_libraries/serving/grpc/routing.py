"""Finds the method of a call, and adds the services that every server has."""

from collections.abc import Callable, Iterable, Mapping

from google.protobuf.descriptor import FileDescriptor

from otel_zernel_libraries.serving.grpc.health import NAME, HealthService
from otel_zernel_libraries.serving.grpc.reflection import ReflectionService
from otel_zernel_libraries.serving.http2 import Method
from otel_zernel_libraries.serving.requests.failures import unserved


def with_standard_services(
    methods: Mapping[str, Method], health: HealthService, services: Iterable[str], files: Iterable[FileDescriptor]
) -> Callable[[Mapping[str, str]], Method]:
    """Finds a method by the headers of its call: one of `methods`, by path, or one of health and reflection.

    Reflection describes `services`, which `files` declare. The result raises `RequestFailure` for an unknown path.
    """
    reflection = ReflectionService((*services, NAME), files)
    known = {**health.methods(), **reflection.methods(), **methods}

    def find(headers: Mapping[str, str]) -> Method:
        path = headers.get(":path", "")
        if method := known.get(path):
            return method
        raise unserved(f"there is no method {path:.100}")

    return find
