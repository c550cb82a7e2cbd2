"""Durations and sizes in the notation of Prometheus."""

import re
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, PlainSerializer

from otel_zernel.types import format_duration, parse_duration, positive

_LONG_UNITS = {"y": 365 * 24, "w": 7 * 24, "d": 24}
"""Hours."""
_LONG = re.compile(r"(\d+)([ywd])")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGTPE]?)(?:i?B)?", re.IGNORECASE)
_POWERS = "KMGTPE"


def parse_long_duration(value: object) -> float:
    """Seconds. Besides the collector's own notation, `d`, `w` and `y` are accepted. Raises `ValueError`."""
    if isinstance(value, str):
        value = _LONG.sub(lambda part: f"{int(part[1]) * _LONG_UNITS[part[2]]}h", value.strip())
    return parse_duration(value)


def parse_size(value: object) -> int:
    """Bytes in `64MiB`, `10MB` or `512KB`. As in Prometheus, KB and KiB are both 1024 bytes. Raises `ValueError`."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    match = _SIZE.fullmatch(str(value).strip())
    if not match:
        raise ValueError(f"not a size: {str(value)!r}; write 64MiB or 512KB")
    return int(float(match[1]) * 1024 ** (_POWERS.find(match[2].upper()) + 1 if match[2] else 0))


LongDuration = Annotated[
    float,
    BeforeValidator(parse_long_duration),
    AfterValidator(positive),
    PlainSerializer(format_duration, when_used="always"),
]
"""Seconds, greater than zero, written `15s`, `1m30s` or `1d`."""
ByteSize = Annotated[int, BeforeValidator(parse_size)]
"""Bytes, written `64MiB`."""
