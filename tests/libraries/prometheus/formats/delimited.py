"""Reads pages in Prometheus' protobuf format by the descriptor of its messages."""

from collections.abc import Iterator
from typing import Any

from otel_zernel_libraries.prometheus.formats.messages import METRIC_TYPES, MetricFamilyMessage

TYPE_NAMES = {number: name for name, number in METRIC_TYPES.items()}
Sample = tuple[str, frozenset[tuple[str, str]]]
"""A name and labels."""


def families(page: bytes) -> list[Any]:
    """The messages of a page."""
    return list(_families(page))


def _families(page: bytes) -> Iterator[Any]:
    position = 0
    while position < len(page):
        size = shift = 0
        while True:
            byte = page[position]
            size |= (byte & 0x7F) << shift
            position, shift = position + 1, shift + 7
            if byte < 0x80:
                break
        assert position + size <= len(page)
        yield MetricFamilyMessage.FromString(page[position : position + size])
        position += size


def samples(page: bytes) -> dict[Sample, float]:
    """The samples that Prometheus makes of a page's numbers, summaries and classic buckets."""
    found: dict[Sample, float] = {}
    for family in families(page):
        for metric in family.metric:
            labels = frozenset((pair.name, pair.value) for pair in metric.label)
            for name, extra, value in _values(family, metric):
                key = family.name + name, labels | extra
                assert key not in found
                found[key] = value
    return found


def _values(family: Any, metric: Any) -> Iterator[tuple[str, frozenset[tuple[str, str]], float]]:
    type_ = TYPE_NAMES[family.type]
    assert metric.HasField(type_)
    body, none = getattr(metric, type_), frozenset[tuple[str, str]]()
    if type_ in ("gauge", "counter"):
        yield "", none, body.value
        return
    yield "_count", none, body.sample_count
    yield "_sum", none, body.sample_sum
    for one in body.quantile if type_ == "summary" else ():
        yield "", frozenset({("quantile", repr(one.quantile).removesuffix(".0"))}), one.value
    for one in body.bucket if type_ == "histogram" else ():
        yield "_bucket", frozenset({("le", repr(one.upper_bound))}), one.cumulative_count
