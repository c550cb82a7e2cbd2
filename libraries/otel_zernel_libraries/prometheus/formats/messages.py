"""The messages of Prometheus' protobuf format, `io.prometheus.client.MetricFamily`, from their field numbers.

The numbers are those of io/prometheus/client/metrics.proto in github.com/prometheus/client_model. A pool of its own
holds the messages, so that another package in the process may define them, too.
"""

from collections.abc import Mapping

from google.protobuf import timestamp_pb2
from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pb2 import EnumDescriptorProto, EnumValueDescriptorProto, FileDescriptorProto
from opentelemetry.proto.metrics.v1.metrics_pb2 import Exemplar

from otel_zernel_libraries.prometheus.labels import value_text
from otel_zernel_libraries.prometheus.names import classic_label
from otel_zernel_libraries.protobuf import declared_file, message_of

METRIC_TYPES = {"counter": 0, "gauge": 1, "summary": 2, "untyped": 3, "histogram": 4, "gauge_histogram": 5}
"""The numbers of `MetricType`, whose names are upper case there."""

_TIMESTAMP = "google.protobuf.Timestamp"
FIELDS: Mapping[str, str] = {
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


_TYPE = EnumDescriptorProto(
    name="MetricType",
    value=[EnumValueDescriptorProto(name=name.upper(), number=number) for name, number in METRIC_TYPES.items()],
)


def message_file(fields: Mapping[str, str]) -> FileDescriptor:
    """The file of these messages: `FIELDS`, or fields with the same wire format."""
    return declared_file(
        "io/prometheus/client/metrics.proto",
        "io.prometheus.client",
        fields,
        FileDescriptorProto(enum_type=[_TYPE]),
        syntax="proto2",
        dependencies=[timestamp_pb2.DESCRIPTOR],
    )


_FILE = message_file(FIELDS)
CounterMessage = message_of(_FILE, "Counter")
ExemplarMessage = message_of(_FILE, "Exemplar")
HistogramMessage = message_of(_FILE, "Histogram")
LabelPairMessage = message_of(_FILE, "LabelPair")
MetricFamilyMessage = message_of(_FILE, "MetricFamily")
SummaryMessage = message_of(_FILE, "Summary")
"""The classes of the messages. They are typed as `Any`, because they are made at run time."""


_MAX_LABELS = 128
"""Characters. The most that the labels of an exemplar may have together (OpenMetrics 1.0, "Exemplars")."""


def exemplar_labels(exemplar: Exemplar) -> dict[str, str]:
    """The ids of trace and span, and the filtered attributes if there is room for all of them."""
    ids = {"trace_id": exemplar.trace_id.hex(), "span_id": exemplar.span_id.hex()}
    others = {classic_label(pair.key): value_text(pair.value) for pair in exemplar.filtered_attributes}
    labels = others | ids
    return ids if sum(len(name) + len(value) for name, value in labels.items()) > _MAX_LABELS else labels
