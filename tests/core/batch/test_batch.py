"""Bytes pass a batch unchanged, copies are independent, and splits and joins lose nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.metrics.v1.metrics_pb2 import Histogram, HistogramDataPoint, Metric, MetricsData
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

from otel_zernel.batch import Batch, points, split_batch
from otel_zernel.errors import DecodeError
from tests.core.parts import batch_of, values_of
from tests.otlp import profiles


def spans(count: int) -> TracesData:
    traces = TracesData()
    scope = traces.resource_spans.add().scope_spans.add()
    for number in range(count):
        scope.spans.add(name=f"span {number}")
    return traces


def test_received_bytes_are_forwarded_unchanged() -> None:
    # The unknown field at the end survives only if the batch is not encoded again.
    data = batch_of(1.0).bytes_of("metrics") + b"\xf8\x07\x01"
    batch = Batch.from_bytes(metrics=data)
    assert batch.metrics.resource_metrics
    assert batch.point_count == 1
    assert batch.bytes_of("metrics") == data


@pytest.mark.parametrize("data", [b"\xff", b"\x0a\x05ab", b"not protobuf at all"])
def test_invalid_otlp_is_a_decode_error(data: bytes) -> None:
    with pytest.raises(DecodeError):
        Batch.from_bytes(metrics=data)
    with pytest.raises(DecodeError):
        Batch.from_bytes(spans=data)


def test_the_error_of_a_damaged_batch_does_not_grow_with_each_read() -> None:
    batch = Batch.encoded("metrics", b"\xff", 1)
    depths = []
    for _ in range(3):
        with pytest.raises(DecodeError) as caught:
            _ = batch.metrics
        depths.append(len(caught.traceback))
    assert depths[1] == depths[2] <= depths[0]


def test_editing_a_copy_leaves_the_original_unchanged() -> None:
    batch = batch_of(1.0)
    twin = batch.copy()
    assert values_of([batch]) == values_of([twin]) == [1.0]
    third = batch.copy()
    edited = third.edit_metrics()
    points(edited.resource_metrics[0].scope_metrics[0].metrics[0])[0].as_double = 9.0
    assert (values_of([batch]), values_of([twin]), values_of([third])) == ([1.0], [1.0], [9.0])
    assert Batch.from_bytes(metrics=third.bytes_of("metrics")).metrics == third.metrics


def test_copies_of_an_encoded_batch_are_parsed_and_encoded_once_together() -> None:
    batch = batch_of(1.0)
    copies = [batch.copy(), batch.only({"metrics"}), batch.copy().copy()]
    assert all(copy.metrics is batch.metrics for copy in copies)
    batch.edit_metrics()
    assert all(copy.metrics is copies[0].metrics is not batch.metrics for copy in copies)
    assert all(copy.bytes_of("metrics") is copies[0].bytes_of("metrics") for copy in copies)


def test_the_last_batch_that_holds_a_content_edits_it_in_place() -> None:
    batch = batch_of(1.0)
    copy, third = batch.copy(), batch.copy()
    message = copy.metrics
    del batch
    assert third.edit_metrics() is not message
    assert copy.edit_metrics() is message
    points(message.resource_metrics[0].scope_metrics[0].metrics[0])[0].as_double = 9.0
    assert (values_of([copy]), values_of([third])) == ([9.0], [1.0])
    assert values_of([Batch.from_bytes(metrics=copy.bytes_of("metrics"))]) == [9.0]


def test_editing_changes_the_count() -> None:
    batch = batch_of(1.0, 2.0)
    assert batch.point_count == 2
    del batch.edit_metrics().resource_metrics[:]
    assert batch.point_count == 0


def test_points_of_every_type_are_counted() -> None:
    data = MetricsData()
    scope = data.resource_metrics.add().scope_metrics.add()
    scope.metrics.add(histogram=Histogram(data_points=[HistogramDataPoint(count=3)]))
    scope.metrics.append(Metric(name="no data at all"))
    assert Batch(metrics=data).point_count == 1


def test_only_copies_the_named_signals() -> None:
    batch = Batch(metrics=batch_of(1.0).metrics, spans=spans(2))
    assert (batch.item_count, batch.only({"metrics"}).item_count, batch.only({"traces"}).item_count) == (3, 1, 2)
    assert batch.only({"traces"}).signals == ("traces",)


@given(st.lists(st.lists(st.floats(allow_nan=False), max_size=5), min_size=1, max_size=5))
def test_joined_batches_hold_every_point_in_order(groups: list[list[float]]) -> None:
    joined = Batch.join([batch_of(*values) for values in groups])
    everything = [value for values in groups for value in values]
    assert joined.point_count == len(everything)
    assert values_of([joined]) == values_of([Batch.from_bytes(metrics=joined.bytes_of("metrics"))]) == everything


@given(st.lists(st.floats(allow_nan=False), max_size=30), st.integers(0, 5), st.integers(1, 12))
def test_pieces_hold_every_item_in_order_and_at_most_max_items(values: list[float], count: int, size: int) -> None:
    batch = Batch(metrics=batch_of(*values).metrics, spans=spans(count))
    pieces = list(split_batch(batch, size))
    assert values_of(pieces) == values
    assert sum(piece.count_of("traces") for piece in pieces) == count
    assert all(piece.item_count <= size for piece in pieces) or len(pieces) == 1


def test_a_piece_keeps_the_resource_the_scope_and_the_metric() -> None:
    first, second = split_batch(batch_of(1.0, 2.0), 1)
    for piece in (first, second):
        resource = piece.metrics.resource_metrics[0]
        metric = resource.scope_metrics[0].metrics[0]
        assert (metric.name, metric.unit) == ("test.value", "1")
        assert resource.resource.attributes[0].key == "host.name"
        assert resource.scope_metrics[0].scope.name == "tests"


def test_a_batch_that_the_collector_encoded_is_parsed_only_if_it_is_read() -> None:
    batch = Batch.encoded("traces", spans(3).SerializeToString(), 3)
    assert (batch.count_of("traces"), batch.point_count) == (3, 0)
    assert batch.bytes_of("traces") == spans(3).SerializeToString()
    assert batch.spans == spans(3)
    assert Batch.encoded("traces", b"not parsed", 1).only({"traces"}).count_of("traces") == 1


def of_temporality(*temporalities: int, points_each: int = 1) -> MetricsData:
    """A sum of each temporality, between a gauge and a summary."""
    metrics = MetricsData()
    scope = metrics.resource_metrics.add().scope_metrics.add()
    scope.metrics.add(name="gauge").gauge.data_points.add()
    for temporality in temporalities:
        data = scope.metrics.add(name="sum").sum
        data.aggregation_temporality = temporality  # type: ignore[assignment]  # an enum's number
        for _ in range(points_each):
            data.data_points.add().attributes.add(key="k").value.string_value = "long" * 40
    scope.metrics.add(name="summary").summary.data_points.add()
    return metrics


@pytest.mark.parametrize("known", [(), (1,), (2,), (1, 2), (1, 1)])
def test_the_temporalities_are_known_from_bytes_messages_and_joins(known: tuple[int, ...]) -> None:
    encoded = of_temporality(*known).SerializeToString()
    received, own = Batch.from_bytes(metrics=encoded), Batch.encoded("metrics", encoded, 3)
    for batch in (received, own, Batch(of_temporality(*known)), Batch.join([received, received.copy()])):
        assert batch.temporalities == set(known)
    received.edit_metrics().CopyFrom(of_temporality(2))
    assert received.temporalities == {2}


def test_a_large_metric_that_is_counted_in_pieces_has_its_temporality() -> None:
    encoded = of_temporality(1, points_each=5000).SerializeToString()
    assert len(encoded) > 2 * (256 << 10)
    assert 1 in Batch.from_bytes(metrics=encoded).temporalities


def test_batches_without_metrics_have_no_temporalities() -> None:
    assert Batch(spans=spans(1)).temporalities == set()


def test_a_metric_without_data_does_not_stop_a_split() -> None:
    batch = batch_of(1.0, 2.0)
    batch.edit_metrics().resource_metrics[0].scope_metrics[0].metrics.add(name="empty")
    assert [values_of([part]) for part in split_batch(batch, 1)] == [[1.0], [2.0]]


def test_received_profiles_are_forwarded_unchanged_and_counted_by_samples() -> None:
    data = profiles(1, 2, 3).SerializeToString() + b"\xf8\x07\x01"
    batch = Batch.from_bytes(profiles=data)
    assert (batch.signals, batch.item_count, str(batch.counts)) == (("profiles",), 3, "3 profile samples")
    assert batch.profiles.dictionary.string_table[3] == "train.py"
    assert batch.bytes_of("profiles") == data


def test_profiles_are_neither_joined_nor_split_because_their_samples_share_a_dictionary() -> None:
    batch = Batch(spans=spans(5), profiles=profiles(*range(9)))
    *rest, last = split_batch(batch, 2)
    assert [piece.count_of("traces") for piece in rest] == [2, 2, 1]
    assert (last.signals, last.profiles) == (("profiles",), batch.profiles)
    assert last.stays_alone
    with pytest.raises(ValueError, match="cannot be joined"):
        Batch.join([batch, last])
    assert Batch.join([batch_of(1.0), last]).signals == ("metrics", "profiles")
