"""The bodies of the log records that carry facts and answers from one component to another."""

from typing import Generic, TypeVar

from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from pydantic import TypeAdapter, ValidationError

from otel_zernel_libraries.conditions.values import from_any_value, to_any_value
from otel_zernel_libraries.training.span_attributes import MalformedSpan

BodyT = TypeVar("BodyT")


class RecordBody(Generic[BodyT]):
    """Writes and reads the bodies of one kind of record: a dataclass as a map of its fields."""

    def __init__(self, body: type[BodyT]) -> None:
        self._adapter = TypeAdapter(body)

    def write(self, content: BodyT) -> AnyValue:
        """The content as the body of a record."""
        return to_any_value(self._adapter.dump_python(content, mode="json"))

    def read(self, body: AnyValue) -> BodyT:
        """The content of the body of a record. Raises `MalformedSpan`."""
        try:
            return self._adapter.validate_python(from_any_value(body))
        except ValidationError as error:
            raise MalformedSpan(".".join(map(str, error.errors()[0]["loc"]))) from None
