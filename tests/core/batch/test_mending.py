"""Mending keeps everything that can be read: other texts stay as they are, and no item is lost."""

import random
from typing import Any

import pytest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from otel_zernel.batch import Batch
from otel_zernel.batch.mending import DEEPEST, is_sound, mended
from otel_zernel.batch.parsing import LARGE
from otel_zernel.engine.delivery.sending import mended_batch
from otel_zernel.errors import DecodeError
from otel_zernel.protobuf import encode_field
from tests.contract.test_damaged_texts import BAD, batch, metrics


def of_values(*values: bytes) -> bytes:
    """Encoded metrics with a point for each encoded attribute value."""
    data = MetricsData()
    points = data.resource_metrics.add().scope_metrics.add().metrics.add(name="g").gauge.data_points
    for number, _ in enumerate(values):
        point = points.add(as_int=number)
        point.attributes.add(key="before").value.string_value = "x" * 100
        point.attributes.add(key="value").value.bytes_value = f"VALUE{number:05}".encode() * 12
        point.attributes.add(key="after").value.string_value = "y"
    encoded = data.SerializeToString()
    for number, value in enumerate(values):
        assert len(value) <= 122
        place = AnyValue(bytes_value=f"VALUE{number:05}".encode() * 12).SerializeToString()
        filler = AnyValue(bytes_value=b"z" * (len(place) - len(value) - 2)).SerializeToString()
        encoded = encoded.replace(place, filler + value)
    return encoded


def gauge(points: bytes) -> bytes:
    """Encoded metrics with a gauge of these encoded points."""
    return encode_field(1, encode_field(2, encode_field(2, encode_field(1, b"g") + encode_field(5, points))))


def test_only_the_wrong_bytes_change() -> None:
    texts = [b"\x0a\x04good", b"\x0a\x04" + BAD, b"\x0a\x02\xe2\x82", b"\x0a\x05caf\xc3\xa9"]
    message = Batch.from_bytes(metrics=of_values(*texts)).metrics
    points = message.resource_metrics[0].scope_metrics[0].metrics[0].gauge.data_points
    assert [point.as_int for point in points] == [0, 1, 2, 3]
    assert [point.attributes[1].value.string_value for point in points] == ["good", "\ufffd(\ufffdX", "\ufffd", "café"]
    assert {point.attributes[2].value.string_value for point in points} == {"y"}


@pytest.mark.parametrize("number", [0, 1, 77, 299])
def test_one_damaged_point_among_many_leaves_the_others_as_they_are(number: int) -> None:
    count = 300
    texts = [b"\x0a\x04good"] * count
    texts[number] = b"\x0a\x04" + BAD
    encoded = of_values(*texts)
    found = mended(MetricsData.DESCRIPTOR, encoded)
    given = of_values(*([b"\x0a\x04good"] * count))
    points = MetricsData.FromString(found).resource_metrics[0].scope_metrics[0].metrics[0].gauge.data_points
    expected = MetricsData.FromString(given).resource_metrics[0].scope_metrics[0].metrics[0].gauge.data_points
    assert [one for one in range(count) if points[one] != expected[one]] == [number]


@pytest.mark.parametrize("levels", [39, 45, 50, 51, 100, 5000])
@pytest.mark.parametrize("kind", ["array", "map"])
@pytest.mark.parametrize("size", [0, LARGE])
def test_a_deep_value_keeps_what_is_above_the_limit(levels: int, kind: str, size: int) -> None:
    value = AnyValue(string_value="inside" + "x" * size).SerializeToString()
    for _ in range(levels):
        if kind == "map":
            value = encode_field(6, encode_field(1, encode_field(1, b"k") + encode_field(2, value)))
        else:
            value = encode_field(5, encode_field(1, value))
    point = encode_field(7, encode_field(1, b"deep") + encode_field(2, value)) + b"\x31" + bytes(8)
    encoded = encode_field(
        1, encode_field(2, encode_field(2, encode_field(1, b"g") + encode_field(5, encode_field(1, point))))
    )
    given = Batch.from_bytes(metrics=encoded)
    text = str(given.metrics)
    assert (f"nested more than {DEEPEST} levels" in text) != ("inside" in text)
    assert given.point_count == 1
    (points,) = [metric.gauge.data_points for metric in given.metrics.resource_metrics[0].scope_metrics[0].metrics]
    assert len(points) == 1
    again = mended_batch(given)
    assert again is None or is_sound(MetricsData.DESCRIPTOR, again.bytes_of("metrics"))


def test_random_damage_inside_attributes_costs_no_point() -> None:
    draw = random.Random(1)  # reproducible damage
    for _ in range(300):
        damage = [draw.randbytes(draw.randint(0, 60)) for _ in range(5)]
        fields = (encode_field(7, one) + encode_field(5, one) + b"\x31" + bytes(8) for one in damage)
        encoded = b"".join(encode_field(1, field) for field in fields)
        given = Batch.from_bytes(metrics=gauge(encoded))
        assert given.point_count == 5
        (metric,) = given.metrics.resource_metrics[0].scope_metrics[0].metrics
        assert len(metric.gauge.data_points) == 5


def test_a_sound_message_is_the_same_bytes() -> None:
    encoded = metrics(1).SerializeToString()
    assert mended(MetricsData.DESCRIPTOR, encoded) is encoded
    assert mended_batch(batch(b"TEXT", 1)) is None


def test_damage_outside_the_opaque_parts_is_an_error() -> None:
    for encoded in (b"\xff\xff", b"\x0a\x05x", b"\x0a\x03\x12\x05x"):
        with pytest.raises(DecodeError):
            mended(MetricsData.DESCRIPTOR, encoded)


def test_the_work_on_a_hostile_message_is_bounded() -> None:
    wrong = KeyValue(key="k").SerializeToString() + b"\x0a\x01\xff"
    hostile = encode_field(7, wrong + b"\x0a\x00" * 500_000)
    encoded = encode_field(
        1, encode_field(2, encode_field(2, encode_field(1, b"g") + encode_field(5, encode_field(1, hostile))))
    )
    with pytest.raises(DecodeError, match="too many damaged parts"):
        mended(MetricsData.DESCRIPTOR, encoded)


@pytest.mark.parametrize("levels", [20, 38, 45])
@pytest.mark.parametrize("is_first", [True, False])
def test_a_nested_value_with_many_siblings_is_mended_within_a_budget_of_bytes(
    levels: int, is_first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    siblings = encode_field(1, AnyValue(string_value="a").SerializeToString()) * 1000
    value = encode_field(1, BAD)
    for _ in range(levels):
        nested = encode_field(1, value)
        value = encode_field(5, nested + siblings if is_first else siblings + nested)
    point = encode_field(7, encode_field(1, b"k") + encode_field(2, value))
    encoded = gauge(encode_field(1, point))
    parsed = []

    def counting(type_: Any, part: bytes) -> bool:
        parsed.append(len(part))
        return is_sound(type_, part)

    monkeypatch.setattr("otel_zernel.batch.mending.is_sound", counting)
    assert is_sound(MetricsData.DESCRIPTOR, mended(MetricsData.DESCRIPTOR, encoded))
    assert sum(parsed) <= 12 * len(encoded)
