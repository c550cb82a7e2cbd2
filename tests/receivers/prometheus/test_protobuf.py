"""The protobuf format, with native histograms."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_zernel_receivers.prometheus.pages.page import NotAPage, ScrapedPage
from otel_zernel_receivers.prometheus.pages.protobuf import ProtobufReader, _float_text, message_class, read_label_pairs


def label(name: str, value: str) -> bytes:
    return bytes(message_class("LabelPair")(name=name, value=value).SerializeToString())


def page_of(*families: dict[str, Any]) -> bytes:
    encoded = [message_class("MetricFamily")(**family).SerializeToString() for family in families]
    return b"".join(_varint(len(one)) + one for one in encoded)


def _varint(size: int) -> bytes:
    return bytes((size,)) if size < 0x80 else bytes((size & 0x7F | 0x80, size >> 7))


def read(body: bytes, *, native: bool = True, classic_too: bool = False) -> ScrapedPage:
    return ProtobufReader(native=native, classic_too=classic_too).read(body)


NATIVE = {
    "sample_count": 10,
    "sample_sum": 12.5,
    "schema": 3,
    "zero_threshold": 1e-9,
    "zero_count": 1,
    "positive_span": [{"offset": 2, "length": 2}, {"offset": 3, "length": 1}],
    "positive_delta": [2, 1, -1],
    "negative_span": [{"offset": -1, "length": 1}],
    "negative_delta": [2],
}


def test_every_type_has_the_samples_of_the_text_format() -> None:
    page = read(
        page_of(
            {"name": "c_total", "type": 0, "metric": [{"label": [label("a", "b")], "counter": {"value": 2}}]},
            {"name": "g", "type": 1, "unit": "seconds", "metric": [{"gauge": {"value": 3}, "timestamp_ms": 1500}]},
            {
                "name": "s",
                "type": 2,
                "metric": [
                    {"summary": {"sample_count": 4, "sample_sum": 5, "quantile": [{"quantile": 0.5, "value": 6}]}}
                ],
            },
            {"name": "u", "type": 3, "metric": [{"untyped": {"value": 7}}]},
            {
                "name": "h",
                "type": 4,
                "metric": [
                    {
                        "histogram": {
                            "sample_count": 3,
                            "sample_sum": 1.5,
                            "bucket": [{"cumulative_count": 2, "upper_bound": 1.0}],
                        }
                    }
                ],
            },
        )
    )
    found = {}
    for key, value in zip(page.keys, page.values, strict=True):
        assert isinstance(key, tuple)
        labels = read_label_pairs(key)
        found[labels.pop("__name__"), tuple(labels.items())] = value
    assert found == {
        ("c_total", (("a", "b"),)): 2,
        ("g", ()): 3,
        ("s", (("quantile", "0.5"),)): 6,
        ("s_sum", ()): 5,
        ("s_count", ()): 4,
        ("u", ()): 7,
        ("h_bucket", (("le", "1.0"),)): 2,
        ("h_bucket", (("le", "+Inf"),)): 3,
        ("h_sum", ()): 1.5,
        ("h_count", ()): 3,
    }
    assert page.times_ns == {1: 1_500_000_000}
    assert page.families["g"].unit == "seconds"


def test_a_native_histogram_has_the_buckets_of_otlp() -> None:
    page = read(page_of({"name": "h", "type": 4, "metric": [{"histogram": NATIVE}]}))
    native = page.natives[0]
    # Prometheus' bucket i is (base^(i-1), base^i]; OTLP's is (base^i, base^(i+1)].
    assert (native.positive, native.negative) == ((1, [2, 3, 0, 0, 0, 2]), (-2, [2]))
    assert (native.count, native.sum, native.zero_count, native.schema) == (10, 12.5, 1, 3)
    assert len(page.keys) == 1


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"schema": -53}, "schema"),
        ({"positive_delta": [2, 1]}, "spans"),
        ({"positive_delta": [2, -3, 1]}, "negative count"),
        ({"positive_span": [{"offset": 2, "length": 2}, {"offset": 2**30, "length": 1}]}, "buckets"),
    ],
)
def test_a_native_histogram_that_makes_no_sense_is_skipped(changes: dict[str, Any], problem: str) -> None:
    other = {"name": "g", "type": 1, "metric": [{"gauge": {"value": 3}}]}
    page = read(page_of({"name": "h", "type": 4, "metric": [{"histogram": NATIVE | changes}]}, other))
    assert (page.values, page.natives, page.malformed) == ([3], {}, 1)
    assert problem in page.problem


def test_classic_buckets_are_read_beside_or_instead_of_native_ones_by_choice() -> None:
    both = {**NATIVE, "bucket": [{"cumulative_count": 2, "upper_bound": 1.0}]}
    body = page_of({"name": "h", "type": 4, "metric": [{"histogram": both}]})
    assert len(read(body).keys) == 1
    assert len(read(body, classic_too=True).keys) == 5
    classic = read(body, native=False)
    assert (len(classic.keys), classic.natives) == (4, {})


@pytest.mark.parametrize("body", [b"\x05abc", b"\xff\xff\xff\xff\xff\xff", b"\x03\xff\xff\xff", b"a 1\n"])
def test_damaged_bytes_are_no_page(body: bytes) -> None:
    with pytest.raises(NotAPage):
        read(body)


@given(st.binary(max_size=300))
def test_any_bytes_are_a_page_or_refused(body: bytes) -> None:
    try:
        page = read(body)
    except NotAPage:
        return
    assert len(page.keys) == len(page.values)


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0.005, "0.005"),
        (1, "1.0"),
        (2.5, "2.5"),
        (1e6, "1e+06"),
        (2.5e7, "2.5e+07"),
        (1e-5, "1e-05"),
        (100000, "100000.0"),
        (math.inf, "+Inf"),
        (0, "0.0"),
    ],
)
def test_bounds_are_written_as_go_writes_them(number: float, text: str) -> None:
    assert _float_text(number) == text
