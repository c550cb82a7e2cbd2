"""`service.name`, which every resource of this processor has."""

from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from otel_zernel.otlp.points import key_values
from otel_zernel_libraries.training import semconv
from otel_zernel_processors.phases.intake.inputs import scalars

OWN_SERVICE = "otel-zernel"
"""The `service.name` of metrics that are about a whole host: that of the collector."""
_UNKNOWN = "unknown_service"
"""What OpenTelemetry's SDKs give to a program without a name."""


def with_service(resource: Resource) -> Resource:
    """A copy of the resource of a process, with a `service.name` if it has none: its job, else its executable."""
    copy = Resource()
    copy.CopyFrom(resource)
    named = scalars(resource.attributes)
    if not named.get("service.name"):
        job, executable = named.get(semconv.JOB_ID), named.get("process.executable.name")
        name = str(job) if job else f"{_UNKNOWN}:{executable}" if executable else _UNKNOWN
        copy.attributes.extend(key_values({"service.name": name}))
    return copy


def is_named(service: object) -> bool:
    """Whether this is a name that somebody has given."""
    return isinstance(service, str) and bool(service) and not service.startswith(_UNKNOWN)
