"""The parameters of a URL, each checked. A wrong one gets 400 with a sentence that names it."""

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, NoReturn
from urllib.parse import parse_qsl

from otel_zernel.text import quoted
from otel_zernel_libraries.serving.api.answers import ApiError
from otel_zernel_libraries.store.rows.points import LATEST_TIME

_MOST: Final = 100
_LABEL: Final = re.compile(r"label\[([^\[\]\x00]{1,256})\]")
_TIME: Final = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)(?:[Tt ](\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?)?(?:[Zz]|([+\- ])(\d\d):?(\d\d))?"
)
_SECONDS: Final = re.compile(r"(\d{1,10})(?:\.(\d{1,9}))?")
_RANGE: Final = re.compile(r"(\d{1,6})(s|m|h|d|w)")
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_NS: Final = 10**9


class Parameters:
    """The parameters of one request."""

    def __init__(self, scope: Mapping[str, Any], known: Iterable[str]) -> None:
        """`known` are the parameters of the route; `label` stands for `label[NAME]`. Raises `ApiError`."""
        known = frozenset(known)
        self._values: dict[str, list[str]] = {}
        self.labels: dict[str, frozenset[str]] = {}
        """The wanted values by label."""
        for name, value in _pairs(scope["query_string"]):
            label = _LABEL.fullmatch(name) if "label" in known else None
            if label:
                self.labels[label[1]] = self.labels.get(label[1], frozenset()) | {value}
            elif name in known - {"label"}:
                self._values.setdefault(name, []).append(value)
            else:
                wrong(name, f"{quoted(name)} is no parameter of this route; use {', '.join(sorted(known))}")

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def all(self, name: str) -> list[str]:
        """All values of a parameter that may be repeated, without empty ones."""
        return [value for value in self._values.get(name, []) if value]

    def words(self, name: str) -> list[str]:
        """The words of a parameter, separated by commas or by repetition."""
        return [word.strip() for value in self.all(name) for word in value.split(",") if word.strip()]

    def text(self, name: str) -> str | None:
        values = self._values.get(name)
        if values and len(values) > 1:
            wrong(name, f"{name} may be given once")
        return values[0] if values and values[0] else None

    def integer(self, name: str, default: int, least: int, most: int) -> int:
        text = self.text(name)
        if text is None:
            return default
        if not re.fullmatch(r"[0-9]{1,18}", text) or not least <= int(text) <= most:
            wrong(name, f"{name} is {quoted(text)}; use an integer from {least} to {most}")
        return int(text)

    def choice(self, name: str, choices: Iterable[str]) -> str | None:
        text, choices = self.text(name), [*choices]
        if text is not None and text not in choices:
            wrong(name, f"{name} is {quoted(text)}; use {', '.join(choices)}")
        return text

    def time_ns(self, name: str) -> int | None:
        """RFC 3339, a date, or seconds since 1970; without a zone in UTC."""
        text = self.text(name)
        return None if text is None else parse_time(name, text)

    def range_ns(self, name: str) -> int | None:
        """A length of time, such as `24h`."""
        text = self.text(name)
        if text is None:
            return None
        match = _RANGE.fullmatch(text)
        if not match or not int(match[1]):
            wrong(name, f"{name} is {quoted(text)}; use a number and a unit, such as 30s, 5m, 1h, 7d or 2w")
        return int(match[1]) * _UNITS[match[2]] * _NS


def parse_time(name: str, text: str) -> int:
    """The ns since 1970. Raises `ApiError` if the text is not a time from 1970 to 2262."""
    try:
        time = _parsed_time(text)
    except ValueError:
        time = -1
    if not 0 <= time <= LATEST_TIME:
        wrong(name, f"{name} is {quoted(text)}; use a time such as 2026-11-22T10:30:00Z, or seconds since 1970")
    return time


def _parsed_time(text: str) -> int:
    if seconds := _SECONDS.fullmatch(text):
        return int(seconds[1]) * _NS + _fraction(seconds[2])
    match = _TIME.fullmatch(text)
    if not match:
        raise ValueError
    numbers = [int(match[part] or 0) for part in range(1, 7)]
    whole = int(datetime(*numbers, tzinfo=UTC).timestamp())  # type: ignore[misc,arg-type]
    offset = int(match[9] or 0) * 3600 + int(match[10] or 0) * 60
    if int(match[9] or 0) > 23 or int(match[10] or 0) > 59:
        raise ValueError
    # The plus sign of a URL that was not encoded arrives as a space.
    whole -= -offset if match[8] == "-" else offset
    return whole * _NS + _fraction(match[7])


def _fraction(digits: str | None) -> int:
    return int((digits or "0").ljust(9, "0"))


def _pairs(query: bytes) -> list[tuple[str, str]]:
    try:
        pairs = parse_qsl(query.decode("ascii"), keep_blank_values=True, max_num_fields=_MOST, errors="strict")
    except UnicodeError as error:
        raise ApiError(400, "the URL is not valid UTF-8; encode it with %") from error
    except ValueError as error:
        raise ApiError(400, f"the URL has more than {_MOST} parameters") from error
    for name, value in pairs:
        if "\0" in name + value:
            raise ApiError(400, f"{quoted(name)} has the character NUL, which no label has")
    return pairs


def wrong(name: str, sentence: str) -> NoReturn:
    """Refuses a parameter."""
    raise ParameterError(name, sentence)


class ParameterError(ApiError):
    """A parameter that cannot be served."""

    def __init__(self, name: str, sentence: str) -> None:
        super().__init__(400, sentence)
        self.name = name
