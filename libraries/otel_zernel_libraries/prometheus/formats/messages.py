"""The messages of Prometheus' protobuf format, `io.prometheus.client.MetricFamily`, from their field numbers.

The numbers are those of io/prometheus/client/metrics.proto in github.com/prometheus/client_model. A pool of its own
holds the messages, so that another package in the process may define them, too.
"""

from typing import Any

from google.protobuf import timestamp_pb2
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

_PACKAGE = "io.prometheus.client"
METRIC_TYPES = {"counter": 0, "gauge": 1, "summary": 2, "untyped": 3, "histogram": 4, "gauge_histogram": 5}
"""The numbers of `MetricType`, whose names are upper case there."""

_TIMESTAMP = "google.protobuf.Timestamp"
_FIELDS: dict[str, str] = {
    "LabelPair": "1 string name; 2 string value",
    "Gauge": "1 double value",
    "Counter": f"1 double value; 2 Exemplar exemplar; 3 {_TIMESTAMP} created_timestamp",
    "Quantile": "1 double quantile; 2 double value",
    "Summary": f"1 uint64 sample_count; 2 double sample_sum; 3 Quantile* quantile; 4 {_TIMESTAMP} created_timestamp",
    "Untyped": "1 double value",
    "Histogram": (
        "1 uint64 sample_count; 4 double sample_count_float; 2 double sample_sum; 3 Bucket* bucket;"
        f"15 {_TIMESTAMP} created_timestamp; 5 sint32 schema; 6 double zero_threshold; 7 uint64 zero_count;"
        "8 double zero_count_float; 9 BucketSpan* negative_span; 10 sint64* negative_delta;"
        "11 double* negative_count; 12 BucketSpan* positive_span; 13 sint64* positive_delta;"
        "14 double* positive_count; 16 Exemplar* exemplars"
    ),
    "Bucket": ("1 uint64 cumulative_count; 4 double cumulative_count_float; 2 double upper_bound; 3 Exemplar exemplar"),
    "BucketSpan": "1 sint32 offset; 2 uint32 length",
    "Exemplar": f"1 LabelPair* label; 2 double value; 3 {_TIMESTAMP} timestamp",
    "Metric": (
        "1 LabelPair* label; 2 Gauge gauge; 3 Counter counter; 4 Summary summary; 5 Untyped untyped;"
        "7 Histogram histogram; 6 int64 timestamp_ms"
    ),
    "MetricFamily": "1 string name; 2 string help; 3 MetricType type; 4 Metric* metric; 5 string unit",
}
"""The fields of each message: number, type and name. A star marks a repeated field."""


def _field(text: str) -> FieldDescriptorProto:
    number, type_, name = text.split()
    field = FieldDescriptorProto(name=name, number=int(number), label=FieldDescriptorProto.LABEL_OPTIONAL)
    plain = type_.removesuffix("*")
    if plain != type_:
        field.label = FieldDescriptorProto.LABEL_REPEATED
    if plain == "MetricType":
        field.type, field.type_name = FieldDescriptorProto.TYPE_ENUM, f".{_PACKAGE}.MetricType"
    elif plain[0].isupper() or plain == _TIMESTAMP:
        field.type = FieldDescriptorProto.TYPE_MESSAGE
        field.type_name = f".{plain}" if plain == _TIMESTAMP else f".{_PACKAGE}.{plain}"
    else:
        field.type = FieldDescriptorProto.Type.Value(f"TYPE_{plain.upper()}")
    return field


def _file() -> FileDescriptorProto:
    file = FileDescriptorProto(name="io/prometheus/client/metrics.proto", package=_PACKAGE, syntax="proto2")
    file.dependency.append(timestamp_pb2.DESCRIPTOR.name)
    file.enum_type.add(name="MetricType")
    for name, number in METRIC_TYPES.items():
        file.enum_type[0].value.add(name=name.upper(), number=number)
    file.message_type.extend(
        DescriptorProto(name=name, field=[_field(one) for one in fields.split(";")]) for name, fields in _FIELDS.items()
    )
    return file


def _pool() -> DescriptorPool:
    pool = DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    pool.AddSerializedFile(_file().SerializeToString())
    return pool


def _message(name: str, pool: DescriptorPool = _pool()) -> Any:  # noqa: B008  # one pool for all
    return GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}"))


CounterMessage = _message("Counter")
ExemplarMessage = _message("Exemplar")
HistogramMessage = _message("Histogram")
LabelPairMessage = _message("LabelPair")
MetricFamilyMessage = _message("MetricFamily")
SummaryMessage = _message("Summary")
"""The classes of the messages. They are typed as `Any`, because they are made at run time."""
