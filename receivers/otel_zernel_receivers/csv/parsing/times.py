"""Parses the times in CSV files."""

import re
from datetime import UTC, datetime, tzinfo

# RFC 3339. A space may replace the T. nvidia-smi separates year, month and day by slashes; its dmon by nothing.
_DATE = re.compile(r"\d{4}-\d\d-\d\d|\d{4}/\d\d/\d\d|\d{8}", re.ASCII)
_CALENDAR = re.compile(rf"({_DATE.pattern})[Tt ](\d\d:\d\d:\d\d)(?:\.(\d{{1,9}})\d*)?(Z|z|[+-]\d\d:\d\d)?", re.ASCII)
_UNIX = re.compile(r"(\d{1,20})(?:\.(\d{1,9})\d*)?", re.ASCII)
# A number below the first bound is in s, below the second in ms, below the third in us, else in ns. So s, ms and us can
# be used up to the year 5138, and ms, us and ns from 1973 on.
_UNIX_UNITS = ((10**11, 10**9), (10**14, 10**6), (10**17, 10**3))


def parse_time(text: str, zone: tzinfo | None = UTC) -> int:
    """The time in ns since 1970.

    `text` is an RFC 3339 time, `YYYY-MM-DD HH:MM:SS[.f]` in `zone` (None: that of this machine), also with slashes or
    as `YYYYMMDD HH:MM:SS`, or a Unix time in s, ms, us or ns. Raises `ValueError` for any other text, and for times
    outside the range of OTLP (1970 to 2554).
    """
    text = text.strip()
    if match := _CALENDAR.fullmatch(text):
        date, clock, fraction, offset = match.groups()
        digits = date.replace("/", "").replace("-", "")
        day = f"{digits[:4]}-{digits[4:6]}-{digits[6:]}"
        moment = datetime.fromisoformat(f"{day}T{clock}{(offset or '').upper()}")
        moment = moment if offset else moment.replace(tzinfo=zone)  # without tzinfo, it is in the machine's zone
        ns = int(moment.timestamp()) * 10**9 + _fraction(fraction, 10**9)
    elif match := _UNIX.fullmatch(text):
        whole = int(match[1])
        unit = next((ns for bound, ns in _UNIX_UNITS if whole < bound), 1)
        ns = whole * unit + _fraction(match[2], unit)
    else:
        raise ValueError(f"not a time: {text[:40]!r}")
    if not 0 < ns < 2**64:
        raise ValueError(f"out of range: {text[:40]!r}")
    return ns


def parse_joined(date: str, clock: str, zone: tzinfo | None = UTC) -> int:
    """The time of a date and a time of day, as `parse_time`. If the date has a time, it counts alone."""
    date = date.strip()
    if not _DATE.fullmatch(date):
        try:
            return parse_time(date, zone)
        except ValueError:
            pass
    return parse_time(f"{date} {clock.strip()}", zone)


def _fraction(digits: str | None, unit: int) -> int:
    """The digits after the decimal point of a number in `unit` ns, in ns."""
    return int(digits.ljust(9, "0")) * unit // 10**9 if digits else 0
