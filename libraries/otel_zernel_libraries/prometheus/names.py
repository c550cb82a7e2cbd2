"""Conversion of OpenTelemetry names and units to Prometheus names.

The rules come from the OpenTelemetry specification, compatibility/prometheus_and_openmetrics.md. Where it leaves room,
the OpenTelemetry Collector's behaviour decides. Units are UCUM units.
"""

import re
from functools import lru_cache

from otel_zernel_libraries.prometheus.options import Options

_UNITS = {
    "d": "days",
    "h": "hours",
    "min": "minutes",
    "s": "seconds",
    "ms": "milliseconds",
    "us": "microseconds",
    "ns": "nanoseconds",
    "By": "bytes",
    "KiBy": "kibibytes",
    "MiBy": "mebibytes",
    "GiBy": "gibibytes",
    "TiBy": "tebibytes",
    "kBy": "kilobytes",
    "KBy": "kilobytes",
    "MBy": "megabytes",
    "GBy": "gigabytes",
    "TBy": "terabytes",
    "m": "meters",
    "V": "volts",
    "A": "amperes",
    "J": "joules",
    "W": "watts",
    "g": "grams",
    "Cel": "celsius",
    "Hz": "hertz",
    "%": "percent",
    "1": "",
}
_PER = {"s": "second", "m": "minute", "min": "minute", "h": "hour", "d": "day", "w": "week", "mo": "month", "y": "year"}
_ANNOTATION = re.compile(r"\{[^}]*\}")
_NOT_IN_NAME = re.compile(r"[^a-zA-Z0-9:]+")
_NOT_IN_LABEL = re.compile(r"[^a-zA-Z0-9]+")
_CLASSIC_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_CLASSIC_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")


def unit_words(unit: str) -> tuple[str, str]:
    """A UCUM unit in words, split at the slash: `By/s` is (`bytes`, `per_second`). `{annotations}` are ignored."""
    main, _, per = (part.strip() for part in _ANNOTATION.sub("", unit).partition("/"))
    per = _underscored(_PER.get(per, per))
    return _underscored(_UNITS.get(main, main)), f"per_{per}" if per else ""


def _underscored(text: str) -> str:
    return _NOT_IN_LABEL.sub("_", text).strip("_")


def classic_name(name: str) -> str:
    """A metric's name in classic characters: letters, digits, `_` and `:`. Empty if the name has no such character."""
    return "_".join(filter(None, _NOT_IN_NAME.split(name)))


def classic_label(attribute: str) -> str:
    """An attribute's name as a classic label name.

    Repeated underscores become one, so the result never starts with `__`, which Prometheus reserves.
    """
    label = _NOT_IN_LABEL.sub("_", attribute) or "_"
    return f"key_{label}" if label[0].isdigit() else label


def is_classic_name(name: str) -> bool:
    """Whether a metric's name needs no quotes."""
    return _CLASSIC_NAME.fullmatch(name) is not None


def is_classic_label(label: str) -> bool:
    """Whether a label's name needs no quotes."""
    return _CLASSIC_LABEL.fullmatch(label) is not None


class Naming:
    """Converts names by the options of one page."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._namespace = classic_name(options.namespace) if options.escapes else options.namespace
        self.label = lru_cache(maxsize=4096)(self._label)

    def unit(self, unit: str, *, is_gauge: bool) -> str:
        """The unit for the UNIT comment. The unit `1` becomes `ratio` for gauges, and nothing for other types."""
        if unit == "1" and is_gauge:
            return "ratio"
        return "_".join(filter(None, unit_words(unit)))

    def family(self, name: str, unit: str, *, is_gauge: bool = False, is_counter: bool = False) -> str:
        """The family name of a metric; empty if the metric's name has no legal character.

        `is_gauge` is true only for OpenTelemetry gauges. A sum with unit `1` counts things and is not a ratio.
        """
        if name in self._options.verbatim:
            return name
        family = classic_name(name) if self._options.escapes else name
        if not family:
            return ""
        if self._options.adds_suffixes:
            family = _with_suffixes(family, unit, is_gauge=is_gauge, is_counter=is_counter)
        if self._namespace:
            family = f"{self._namespace}_{family}"
        return f"_{family}" if self._options.escapes and family[0].isdigit() else family

    def _label(self, attribute: str) -> str:
        """The label name of an attribute. It never starts with `__`, which Prometheus reserves."""
        configured = self._options.label_names.get(attribute)
        if configured is not None:
            return configured
        if self._options.escapes:
            return classic_label(attribute)
        return "_" + attribute.lstrip("_") if attribute.startswith("__") or not attribute else attribute


def _with_suffixes(name: str, unit: str, *, is_gauge: bool, is_counter: bool) -> str:
    last = "total" if is_counter else "ratio" if is_gauge and unit == "1" else ""
    if last:
        name = _without_word(name, last)
    for words in unit_words(unit):
        if words not in ("", last) and f"_{words}_" not in f"_{name}_":
            name = f"{name}_{words}"
    return f"{name}_{last}".lstrip("_") if last else name


def _without_word(name: str, word: str) -> str:
    return "_".join(part for part in name.split("_") if part != word)
