"""Series have the right start times, end when their entries do, and keep within the limit.

A value that a program counts is inside the bounds of its bucket.

Decoders give the values that users of ebpf_exporter know.
"""

import sys
from bisect import bisect_left
from pathlib import Path
from typing import Any

import pytest

from otel_zernel.otlp.staleness import has_no_value
from otel_zernel_receivers.bcc.config import BccMetricConfig, BucketsConfig
from otel_zernel_receivers.bcc.decoder_config import DecoderConfig, decoded
from otel_zernel_receivers.bcc.decoders import Skipped
from otel_zernel_receivers.bcc.programs import MetricSeries, bounds, counts

ATTACHED, FIRST, SECOND, THIRD = 100, 200, 300, 400
PID = {"name": "process.pid", "field": "pid", "decoders": ["pid"]}


class Scraped:
    """The series of one metric, with what they dropped."""

    def __init__(self, key: list[str], fields: tuple[str, ...] = ("",), **options: Any) -> None:
        config = {"table": "t", "name": "m", "type": "sum", **options}
        self.series = MetricSeries(BccMetricConfig.model_validate(config), key, fields)
        self.series.restart(ATTACHED)
        self.dropped: list[int] = []

    def __call__(self, rows: list[Any], time_ns: int) -> dict[tuple[Any, ...], Any]:
        metric = self.series.metric(rows, time_ns, self.dropped.append)
        found = {}
        for point in getattr(metric, metric.WhichOneof("data") or "").data_points:
            labels = tuple(pair.value.string_value or pair.value.int_value for pair in point.attributes)
            found[labels] = None if has_no_value(point) else point
        return found


def test_a_counter_starts_when_its_program_was_attached() -> None:
    scraped = Scraped(["pid"], labels=[PID])
    point = scraped([[[7], [3]]], FIRST)[7,]
    assert (point.as_int, point.start_time_unix_nano, point.time_unix_nano) == (3, ATTACHED, FIRST)


def test_an_entry_that_comes_later_has_started_after_the_last_scrape() -> None:
    scraped = Scraped(["pid"], labels=[PID])
    scraped([[[7], [3]]], FIRST)
    points = scraped([[[7], [4]], [[8], [1]]], SECOND)
    assert [points[pid,].start_time_unix_nano for pid in (7, 8)] == [ATTACHED, FIRST]


def test_an_entry_that_is_gone_ends_its_series_once() -> None:
    scraped = Scraped(["pid"], labels=[PID])
    scraped([[[7], [3]], [[8], [1]]], FIRST)
    assert scraped([[[8], [1]]], SECOND)[7,] is None
    assert (7,) not in scraped([[[8], [1]]], THIRD)


def test_an_entry_that_was_deleted_and_is_there_again_starts_anew() -> None:
    scraped = Scraped(["pid"], labels=[PID])
    scraped([[[7], [3]]], FIRST)
    scraped([], SECOND)
    assert scraped([[[7], [1]]], THIRD)[7,].start_time_unix_nano == SECOND


def test_a_counter_that_falls_starts_anew() -> None:
    scraped = Scraped(["pid"], labels=[PID])
    scraped([[[7], [3]]], FIRST)
    assert scraped([[[7], [2]]], SECOND)[7,].start_time_unix_nano == FIRST


def test_a_restart_is_a_new_start_and_ends_what_does_not_come_again() -> None:
    scraped = Scraped(["pid"], labels=[PID])
    scraped([[[7], [3]], [[8], [3]]], FIRST)
    scraped.series.restart(SECOND)
    points = scraped([[[7], [5]]], THIRD)
    assert points[7,].start_time_unix_nano == SECOND
    assert points[8,] is None


def test_entries_with_the_same_labels_are_added_up() -> None:
    scraped = Scraped(["pid", "comm"], labels=[{"name": "comm", "field": "comm"}])
    points = scraped([[[1, "a\0"], [3]], [[2, "a"], [4]], [[3, "b"], [1]]], FIRST)
    assert {labels: point.as_int for labels, point in points.items()} == {("a",): 7, ("b",): 1}


def test_series_above_the_limit_are_counted_and_known_ones_stay() -> None:
    scraped = Scraped(["pid"], labels=[PID], max_series=2)
    scraped([[[7], [1]], [[8], [1]]], FIRST)
    points = scraped([[[5], [1]], [[6], [1]], [[7], [2]], [[8], [2]]], SECOND)
    assert (sorted(points), scraped.dropped) == ([(7,), (8,)], [2])


def test_a_gauge_has_no_start_and_is_scaled() -> None:
    scraped = Scraped([""], type="gauge", scale=1024)
    point = scraped([[[0], [3]]], FIRST)[()]
    assert (point.as_double, point.start_time_unix_nano) == (3072, 0)


def test_a_metric_takes_one_field_of_a_structure() -> None:
    scraped = Scraped([""], ("calls", "bytes"), value="bytes")
    assert scraped([[[0], [3, 4096]]], FIRST)[()].as_int == 4096


def test_a_histogram_has_the_sum_that_its_table_keeps_and_else_none() -> None:
    rows = [[[1], [2]], [[3], [5]], [[40], [900]]]
    buckets = {"min": 1, "max": 3}
    point = Scraped([""], type="histogram", buckets={**buckets, "sum_slot": 40}, scale=0.001)(rows, FIRST)[()]
    assert (list(point.bucket_counts), point.count, point.sum) == ([2, 0, 5, 0], 7, 0.9)
    assert list(point.explicit_bounds) == [0.001, 0.003, 0.007]
    assert not Scraped([""], type="histogram", buckets=buckets)(rows, FIRST)[()].HasField("sum")


@pytest.mark.parametrize("value", [2**63, 2**64 - 1])
def test_a_counter_above_the_largest_integer_stays_there(value: int) -> None:
    assert Scraped([""])([[[0], [value]]], FIRST)[()].as_int == 2**63 - 1


def log2l(value: int) -> int:
    """bpf_log2l() of BCC."""
    return max(value.bit_length(), 1)


VALUES = sorted({0, *(number for bit in range(40) for number in ((1 << bit) - 1, 1 << bit, (1 << bit) + 1))})


@pytest.mark.parametrize("value", VALUES)
def test_each_value_is_in_the_bucket_that_its_bounds_promise(value: int) -> None:
    config = BucketsConfig(min=3, max=30)
    filled = counts(config, {log2l(value): 1})
    assert filled.index(1) == bisect_left(bounds(config, 1.0), value)


@pytest.mark.parametrize("value", range(60))
def test_each_value_of_a_linear_histogram_too(value: int) -> None:
    config = BucketsConfig(type="linear", step=5, min=2, max=8)
    filled = counts(config, {value // 5: 1})
    assert filled.index(1) == bisect_left(bounds(config, 1.0), value)


def test_bounds_are_in_the_unit_without_errors_of_rounding() -> None:
    assert bounds(BucketsConfig(min=1, max=3), 1e-9) == [1e-9, 3e-9, 7e-9]
    assert bounds(BucketsConfig(type="fixed", bounds=(1, 5)), 1024) == [1024, 5120]


def test_slots_beyond_the_limits_are_counted_at_the_edges() -> None:
    assert counts(BucketsConfig(min=2, max=3), {0: 1, 1: 2, 2: 4, 3: 8, 4: 16, 60: 32}) == [7, 8, 48]


def test_the_slot_of_the_sum_is_no_bucket() -> None:
    assert counts(BucketsConfig(type="fixed", bounds=(1, 2), sum_slot=3), {0: 1, 2: 5, 3: 1000}) == [1, 0, 5]


def decode(decoders: list[Any], value: int | bytes) -> int | str:
    return decoded([DecoderConfig.model_validate(decoder) for decoder in decoders], value)


LOOPBACK = int.from_bytes(b"\x7f\0\0\1", sys.byteorder)
"""127.0.0.1 as struct sock has it: the bytes in network order."""


@pytest.mark.parametrize(
    ("decoders", "value", "expected"),
    [
        ([], 7, 7),
        ([], b"abc\0\0rest", "abc"),
        (["uint"], b"\1\0" if sys.byteorder == "little" else b"\0\1", 1),
        (["int"], b"\xff\xff\xff\xff", -1),
        (["pid"], 812, 812),
        (["comm"], b"python\0\0\0", "python"),
        (["string"], b"caf\xc3\xa9", "café"),
        (["string"], b"\xff", "�"),
        (["hex"], 255, "0xff"),
        (["hex"], b"\1\xab", "01ab"),
        (["inet_ip"], LOOPBACK, "127.0.0.1"),
        (["inet_ip"], b"\x0a\0\0\7", "10.0.0.7"),
        (["inet_ip"], bytes(15) + b"\1", "::1"),
        (["errno"], 2, "ENOENT"),
        (["errno"], -11, "EAGAIN"),
        (["errno"], 0, "OK"),
        (["errno"], 9999, "unknown:9999"),
        (["ifname"], 1, "lo"),
        (["ifname"], 99_999, "unknown:99999"),
        (["majorminor"], 4095 << 20 | 77, "4095:77"),
        ([{"name": "static_map", "static_map": {1: "read", 2: "write"}}], 2, "write"),
        ([{"name": "static_map", "static_map": {1: "read"}}], 3, "unknown:3"),
        (["string", {"name": "static_map", "static_map": {"R": "read"}}], b"R\0\0", "read"),
        ([{"name": "regexp", "regexps": ["^py", "^ruby"]}], b"python\0", "python"),
    ],
)
def test_a_field_becomes_the_value_of_an_attribute(
    decoders: list[Any], value: int | bytes, expected: int | str
) -> None:
    assert decode(decoders, value) == expected


def test_an_entry_that_no_regexp_matches_is_left_out() -> None:
    with pytest.raises(Skipped):
        decode([{"name": "regexp", "regexps": ["^py"]}], b"perl\0")


@pytest.mark.skipif(not any(Path("/sys/dev/block").glob("*")), reason="this machine has no block device")
def test_a_device_number_becomes_the_name_of_the_device() -> None:
    link = next(Path("/sys/dev/block").glob("*"))
    major, minor = map(int, link.name.split(":"))
    assert decode(["majorminor"], major << 20 | minor) == link.readlink().name
