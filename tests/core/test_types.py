"""Durations and addresses are read and printed in the notation of the OpenTelemetry Collector."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_zernel.types import Address, format_duration, parse_address, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("10s", 10),
        ("200ms", 0.2),
        ("1h30m", 5400),
        ("1.5s", 1.5),
        (".5m", 30),
        ("0", 0),
        (0, 0),
        ("3us", 3e-6),
        ("5ns", 5e-9),
    ],
)
def test_durations_are_written_as_in_go(text: object, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text", ["", "10", "s", "-1s", "1d", "1s 2s", "1.2.3s", 5, 1.5, True, None, [], "9" * 400 + "h"]
)
def test_any_other_value_is_not_a_duration(text: object) -> None:
    with pytest.raises(ValueError, match="duration"):
        parse_duration(text)


@given(st.integers(0, 10**15))
def test_a_printed_duration_is_read_as_the_same_duration(nanoseconds: int) -> None:
    seconds = nanoseconds / 1e9
    assert parse_duration(format_duration(seconds)) == pytest.approx(seconds, abs=1e-9)


@pytest.mark.parametrize(("seconds", "text"), [(0, "0s"), (60, "1m"), (90, "90s"), (1.5, "1500ms"), (2e-9, "2ns")])
def test_a_duration_is_printed_in_the_largest_unit_that_keeps_it_whole(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@pytest.mark.parametrize("text", ["localhost:9091", "0.0.0.0:0", "[::1]:80", ":9091"])
def test_an_address_is_printed_as_it_was_written(text: str) -> None:
    assert str(parse_address(text)) == text


@pytest.mark.parametrize("text", ["", "x", "x:", "x:70000", "::1:80", "a b:1", 9091, None, ["x:1"], "http://x:1"])
def test_any_other_value_is_not_an_address(text: object) -> None:
    with pytest.raises(ValueError, match="not an address to listen on"):
        parse_address(text)


@given(st.text() | st.integers() | st.floats() | st.booleans() | st.lists(st.integers()))
def test_no_error_other_than_value_error_is_raised(value: object) -> None:
    for parse in (parse_duration, parse_address):
        with contextlib.suppress(ValueError):
            parse(value)


def test_a_parsed_address_is_accepted() -> None:
    assert parse_address(Address("x", 1)) == Address("x", 1)
