"""Units of Prometheus in UCUM: https://opentelemetry.io/docs/specs/otel/compatibility/prometheus_and_openmetrics/."""

from collections.abc import Mapping
from typing import Final

_UCUM: Final[Mapping[str, str]] = {
    "days": "d",
    "hours": "h",
    "minutes": "min",
    "seconds": "s",
    "milliseconds": "ms",
    "microseconds": "us",
    "nanoseconds": "ns",
    "bytes": "By",
    "kibibytes": "KiBy",
    "mebibytes": "MiBy",
    "gibibytes": "GiBy",
    "tebibytes": "TiBy",
    "kilobytes": "kBy",
    "megabytes": "MBy",
    "gigabytes": "GBy",
    "terabytes": "TBy",
    "meters": "m",
    "volts": "V",
    "amperes": "A",
    "joules": "J",
    "watts": "W",
    "grams": "g",
    "celsius": "Cel",
    "hertz": "Hz",
    "percent": "%",
    "ratio": "1",
}
_PER: Final[Mapping[str, str]] = {
    "second": "s",
    "minute": "min",
    "hour": "h",
    "day": "d",
    "week": "w",
    "month": "mo",
    "year": "y",
}


def ucum(unit: str) -> str:
    """`bytes_per_second` is `By/s`. Unknown units stay as they are."""
    main, slash, per = unit.partition("_per_")
    return f"{_UCUM.get(main, main)}/{_PER.get(per, per)}" if slash else _UCUM.get(unit, unit)


def without_suffixes(name: str, unit: str, *, is_counter: bool) -> str:
    """The name without `_total` and its unit: `http_request_duration_seconds_total` is `http_request_duration`."""
    trimmed = name.removesuffix("_total") if is_counter else name
    trimmed = trimmed.removesuffix(f"_{unit}") if unit else trimmed
    return trimmed or name
