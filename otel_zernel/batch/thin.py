"""The thin parse: it checks and counts encoded OTLP at a quarter of the cost of a full parse.

The messages are those of OTLP, but attributes, events, links, exemplars, log bodies and the like are `bytes`: protobuf
checks their lengths and does not look inside. So are texts, which need not be UTF-8: one wrong name must not cost the
other items. The first component that reads the message gets it mended.
"""

from collections.abc import Mapping
from typing import Any, Final

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError as ProtobufDecodeError
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from opentelemetry.proto.common.v1 import common_pb2
from opentelemetry.proto.logs.v1 import logs_pb2
from opentelemetry.proto.metrics.v1 import metrics_pb2
from opentelemetry.proto.profiles.v1development import profiles_pb2
from opentelemetry.proto.resource.v1 import resource_pb2
from opentelemetry.proto.trace.v1 import trace_pb2

from otel_zernel.batch.signals import MESSAGE_TYPES, Signal
from otel_zernel.errors import DecodeError
from otel_zernel.once import once

MOST_CONTAINERS = 100_000
"""Resources, scopes, metrics and profiles of one message. An empty one takes 2 bytes and 2 us: 4 MiB took 4 s."""
OPAQUE = frozenset(
    {"attributes", "events", "links", "exemplars", "body", "metadata", "entity_refs", "quantile_values", "dictionary"}
)
_FILES = (
    common_pb2,
    resource_pb2,
    metrics_pb2,
    trace_pb2,
    logs_pb2,
    profiles_pb2,
)  # imported files before their importers
LEVELS: Final[Mapping[Signal, tuple[str, str, str]]] = {
    "metrics": ("resource_metrics", "scope_metrics", "metrics"),
    "traces": ("resource_spans", "scope_spans", "spans"),
    "logs": ("resource_logs", "scope_logs", "log_records"),
    "profiles": ("resource_profiles", "scope_profiles", "profiles"),
}
"""The fields of a message with its resources, of a resource with its scopes, and of a scope with its parts."""
_HOLDING: Final = frozenset({"metrics", "profiles"})
"""The signals whose parts of a scope hold the items."""
ADDABLE: Final = frozenset({"sum", "histogram", "exponential_histogram"})
"""The kinds of metrics that have an aggregation temporality."""
EXPLICIT_HISTOGRAMS: Final = -1
"""Stands among the temporalities of metrics if there are histograms with explicit bounds."""


class TooManyContainers(DecodeError):
    """A message has too many resources, scopes and metrics."""

    def __init__(self, most: int, seen: int) -> None:
        super().__init__(f"more than {most} resources, scopes, metrics and profiles in one message")
        self.found = seen
        """The number of those that were found until the check ended."""


def count_at_once(
    signal: Signal,
    encoded: bytes,
    most_containers: int = MOST_CONTAINERS,
    temporalities: set[int] | None = None,
) -> int:
    """The number of items in an encoded message of this signal. Raises `DecodeError` if it is not valid.

    Raises `TooManyContainers` if it has more than `most_containers` resources, scopes, metrics and profiles. Adds the
    aggregation temporalities of its sums and histograms to `temporalities`.
    """
    try:
        message = thin_type(signal).FromString(encoded)
    except ProtobufDecodeError as error:
        raise DecodeError(str(error)) from error
    seen: set[int] = set() if temporalities is None else temporalities
    resources_field, scopes_field, parts_field = LEVELS[signal]
    resources = getattr(message, resources_field)
    items, containers = 0, _bounded(len(resources), most_containers)
    for resource in resources:
        scopes = getattr(resource, scopes_field)
        containers = _bounded(containers + len(scopes), most_containers)
        for scope in scopes:
            parts = getattr(scope, parts_field)
            if signal in _HOLDING:
                containers = _bounded(containers + len(parts), most_containers)
            if signal == "metrics":
                items += sum(_count_points(metric, seen) for metric in parts)
            elif signal == "profiles":
                items += sum(len(profile.samples) for profile in parts)
            else:
                items += len(parts)
    return items


def _bounded(containers: int, most: int) -> int:
    """The number, unless it is too large to look at each one."""
    if containers > most:
        raise TooManyContainers(most, containers)
    return containers


def _count_points(metric: Any, temporalities: set[int]) -> int:
    data_type = metric.WhichOneof("data")
    if not data_type:
        return 0
    data = getattr(metric, data_type)
    if data_type in ADDABLE:
        temporalities.add(data.aggregation_temporality)
    if data_type == "histogram":
        temporalities.add(EXPLICIT_HISTOGRAMS)
    return len(data.data_points)


def thin_type(signal: Signal) -> type[Message]:
    """The type of a message, whose parts that nobody counts are `bytes`."""
    return _thin_types()[signal]


@once
def _thin_types() -> dict[Signal, type[Message]]:
    """The message types, made on first use: that takes 2 ms."""
    pool = DescriptorPool()
    for module in _FILES:
        file = FileDescriptorProto()
        module.DESCRIPTOR.CopyToProto(file)
        for message in file.message_type:
            for field in message.field:
                _make_opaque(field)
        pool.Add(file)
    names = {signal: type_.DESCRIPTOR.full_name for signal, type_ in MESSAGE_TYPES.items()}
    return {signal: GetMessageClass(pool.FindMessageTypeByName(name)) for signal, name in names.items()}


def _make_opaque(field: FieldDescriptorProto) -> None:
    if field.name in OPAQUE and field.type == FieldDescriptorProto.TYPE_MESSAGE:
        field.type = FieldDescriptorProto.TYPE_BYTES
        field.ClearField("type_name")
    elif field.type == FieldDescriptorProto.TYPE_STRING:
        field.type = FieldDescriptorProto.TYPE_BYTES
