"""OpenTelemetry names and units, spelled as Prometheus wants them.

The rules are those of the OpenTelemetry specification, compatibility/prometheus_and_openmetrics.md, as the Collector
reads them; the units are UCUM's.
"""

import re
from functools import lru_cache

from otel_zernel.exposition.options import Options

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
_NO_NAME = re.compile(r"[^a-zA-Z0-9:]+")
_NO_LABEL = re.compile(r"[^a-zA-Z0-9]+")
_CLASSIC_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_CLASSIC_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")


def unit_words(unit: str) -> tuple[str, str]:
    """A UCUM unit in words, split at the slash: `By/s` is (`bytes`, `per_second`). `{annotations}` say nothing."""
    main, _, per = (part.strip() for part in _ANNOTATION.sub("", unit).partition("/"))
    per = _underscored(_PER.get(per, per))
    return _underscored(_UNITS.get(main, main)), f"per_{per}" if per else ""


def _underscored(text: str) -> str:
    return _NO_LABEL.sub("_", text).strip("_")


def classic_name(name: str) -> str:
    """A metric's name in the characters Prometheus always knew; empty if it has none of them."""
    return "_".join(filter(None, _NO_NAME.split(name)))


def classic_label(attribute: str) -> str:
    """An attribute's name as a label. Runs of underscores become one, so no result is a reserved `__name`."""
    label = _NO_LABEL.sub("_", attribute) or "_"
    return f"key_{label}" if label[0].isdigit() else label


def is_classic_name(name: str) -> bool:
    """Whether a metric's name needs no quotes."""
    return _CLASSIC_NAME.fullmatch(name) is not None


def is_classic_label(label: str) -> bool:
    """Whether a label's name needs no quotes."""
    return _CLASSIC_LABEL.fullmatch(label) is not None


class Naming:
    """Names by one page's options."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._namespace = classic_name(options.namespace) if options.escapes else options.namespace
        self.label = lru_cache(maxsize=4096)(self._label)

    def unit(self, unit: str, *, is_gauge: bool) -> str:
        """A unit as Prometheus's UNIT comment has it; `1` is a ratio for gauges, and for others nothing."""
        if unit == "1" and is_gauge:
            return "ratio"
        return "_".join(filter(None, unit_words(unit)))

    def family(self, name: str, unit: str, *, is_gauge: bool = False, is_counter: bool = False) -> str:
        """The name of a metric's family; empty if nothing of the metric's name can be kept.

        `is_gauge` is true for OpenTelemetry's gauges alone: a sum of unit `1` counts things and is no ratio.
        """
        named = classic_name(name) if self._options.escapes else name
        if not named:
            return ""
        if self._options.adds_suffixes:
            named = _with_suffixes(named, unit, is_gauge=is_gauge, is_counter=is_counter)
        if self._namespace:
            named = f"{self._namespace}_{named}"
        return f"_{named}" if self._options.escapes and named[0].isdigit() else named

    def _label(self, attribute: str) -> str:
        """The label of an attribute; never a `__reserved` one."""
        chosen = self._options.label_names.get(attribute)
        if chosen is not None:
            return chosen
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
