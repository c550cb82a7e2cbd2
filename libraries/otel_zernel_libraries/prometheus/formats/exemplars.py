"""The labels of exemplars."""

from opentelemetry.proto.metrics.v1.metrics_pb2 import Exemplar

from otel_zernel_libraries.prometheus.labels import value_text
from otel_zernel_libraries.prometheus.names import classic_label

_MAX_LABELS = 128
"""Characters. The most that the labels of an exemplar may have together (OpenMetrics 1.0, "Exemplars")."""


def exemplar_labels(exemplar: Exemplar) -> dict[str, str]:
    """The ids of trace and span, and the filtered attributes if there is room for all of them."""
    ids = {"trace_id": exemplar.trace_id.hex(), "span_id": exemplar.span_id.hex()}
    others = {classic_label(pair.key): value_text(pair.value) for pair in exemplar.filtered_attributes}
    labels = others | ids
    return ids if sum(len(name) + len(value) for name, value in labels.items()) > _MAX_LABELS else labels
