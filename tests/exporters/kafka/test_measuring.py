"""The counts of sent messages."""

from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from otel_zernel_exporters.kafka.sending import SentRecords
from otel_zernel_libraries.clients.kafka.producing import OutgoingMessage


def test_topics_that_data_choose_do_not_make_series_without_end() -> None:
    reader = InMemoryMetricReader()
    sent = SentRecords(MeterProvider([reader]).get_meter("test"))
    for number in range(1000):
        sent.count([OutgoingMessage(f"topic-{number}", b"", None, [], source=None)], ())
    sent.count([OutgoingMessage("topic-0", b"", None, [], source=None)], ())
    data: Any = reader.get_metrics_data()
    points = data.resource_metrics[0].scope_metrics[0].metrics[0].data.data_points
    counts = {point.attributes["topic"]: point.value for point in points}
    assert len(counts) == 201
    assert (counts["topic-0"], counts["topic-1"], counts["_OTHER"]) == (2, 1, 800)
