"""The messages of Prometheus' protobuf format: io/prometheus/client/metrics.proto.

Labels are declared as bytes, which have the same wire format: they are the same at each scrape, and are only read when
they are new. The pool is a private one, because other packages may register the same names.
"""

from functools import cache
from typing import Any

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

_PACKAGE = "io.prometheus.client"
_SCALARS = {
    "double": FieldDescriptorProto.TYPE_DOUBLE,
    "uint64": FieldDescriptorProto.TYPE_UINT64,
    "int64": FieldDescriptorProto.TYPE_INT64,
    "int32": FieldDescriptorProto.TYPE_INT32,
    "uint32": FieldDescriptorProto.TYPE_UINT32,
    "sint32": FieldDescriptorProto.TYPE_SINT32,
    "sint64": FieldDescriptorProto.TYPE_SINT64,
    "string": FieldDescriptorProto.TYPE_STRING,
    "bytes": FieldDescriptorProto.TYPE_BYTES,
}
_MESSAGES = {
    "LabelPair": "string name=1, string value=2",
    "Timestamp": "int64 seconds=1, int32 nanos=2",
    "Gauge": "double value=1",
    "Exemplar": "*bytes label=1, double value=2, Timestamp timestamp=3",
    "Counter": "double value=1, Exemplar exemplar=2, Timestamp created_timestamp=3",
    "Quantile": "double quantile=1, double value=2",
    "Summary": "uint64 sample_count=1, double sample_sum=2, *Quantile quantile=3, Timestamp created_timestamp=4",
    "Bucket": ("uint64 cumulative_count=1, double upper_bound=2, Exemplar exemplar=3, double cumulative_count_float=4"),
    "BucketSpan": "sint32 offset=1, uint32 length=2",
    "Histogram": (
        "uint64 sample_count=1, double sample_sum=2, *Bucket bucket=3, double sample_count_float=4, sint32 schema=5,"
        "double zero_threshold=6, uint64 zero_count=7, double zero_count_float=8, *BucketSpan negative_span=9,"
        "*sint64 negative_delta=10, *double negative_count=11, *BucketSpan positive_span=12,"
        "*sint64 positive_delta=13, *double positive_count=14, Timestamp created_timestamp=15, *Exemplar exemplars=16"
    ),
    "Metric": (
        "*bytes label=1, Gauge gauge=2, Counter counter=3, Summary summary=4, Gauge untyped=5, int64 timestamp_ms=6,"
        "Histogram histogram=7"
    ),
    "MetricFamily": "string name=1, string help=2, int32 type=3, *Metric metric=4, string unit=5",
}
"""The fields of each message; a star marks a repeated one. Gauge and Untyped have the same wire format."""


@cache
def message_class(name: str) -> Any:
    """The class of a message: `MetricFamily`, `LabelPair`."""
    return GetMessageClass(_pool().FindMessageTypeByName(f"{_PACKAGE}.{name}"))


@cache
def _pool() -> DescriptorPool:
    file = FileDescriptorProto(name="metrics.proto", package=_PACKAGE, syntax="proto2")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for text in fields.split(","):
            _add_field(message.field, *text.split())
    pool = DescriptorPool()
    pool.Add(file)
    return pool


def _add_field(fields: Any, type_: str, numbered: str) -> None:
    name, _, number = numbered.partition("=")
    repeated, type_ = type_.startswith("*"), type_.removeprefix("*")
    label = FieldDescriptorProto.LABEL_REPEATED if repeated else FieldDescriptorProto.LABEL_OPTIONAL
    field = fields.add(name=name, number=int(number), label=label)
    if type_ in _SCALARS:
        field.type = _SCALARS[type_]
    else:
        field.type, field.type_name = FieldDescriptorProto.TYPE_MESSAGE, f".{_PACKAGE}.{type_}"
