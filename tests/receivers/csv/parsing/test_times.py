from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_zernel_receivers.csv.parsing.times import parse_time

SECOND = 1_752_871_354 * 10**9


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2025-07-18T20:42:34Z", SECOND),
        ("2025-07-18t20:42:34z", SECOND),
        ("2025-07-18T22:42:34+02:00", SECOND),
        ("2025-07-18T20:42:34.123456789Z", SECOND + 123_456_789),
        ("2025-07-18T20:42:34.1234567899Z", SECOND + 123_456_789),
        ("2025-07-18 20:42:34", SECOND),
        ("2025-07-18 20:42:34.5", SECOND + 500_000_000),
        (" 1752871354 ", SECOND),
        ("1752871354.123456789", SECOND + 123_456_789),
        ("1752871354123", SECOND + 123_000_000),
        ("1752871354123.5", SECOND + 123_500_000),
        ("1752871354123456", SECOND + 123_456_000),
        ("1752871354123456789", SECOND + 123_456_789),
    ],
)
def test_times_are_parsed_to_the_nanosecond(text: str, expected: int) -> None:
    assert parse_time(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0",
        "-1",
        "now",
        "2025-07-18",
        "2025-13-01T00:00:00Z",
        "2025-07-18T25:00:00Z",
        "1969-12-31T23:59:59Z",
        "2600-01-01T00:00:00Z",
        "0001-01-01T00:00:00+23:59",
        "1e9",
        "nan",
        "99999999999999999999",
        "١٧٥٢٨٧١٣٥٤",
    ],
)
def test_an_invalid_time_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"time|range|month|hour|year"):
        parse_time(text)


@given(st.integers(1, 2**63))
def test_every_rfc_3339_time_is_parsed_exactly(ns: int) -> None:
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=ns // 10**9)
    assert parse_time(f"{moment:%Y-%m-%dT%H:%M:%S}.{ns % 10**9:09d}Z") == ns


@given(st.text())
def test_any_text_is_a_time_or_a_value_error(text: str) -> None:
    with suppress(ValueError):
        assert 0 < parse_time(text) < 2**64
