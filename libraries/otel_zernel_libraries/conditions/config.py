"""The `include` and `exclude` properties of the OpenTelemetry Collector, and the tests that they describe."""

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator

from otel_zernel.batch import Signal
from otel_zernel.text import quoted, suggestion
from otel_zernel.types import Section
from otel_zernel_libraries.conditions.fields import SEVERITIES, SPAN_KINDS, Context, attribute_reader, attributes_reader
from otel_zernel_libraries.conditions.item import Item
from otel_zernel_libraries.conditions.patterns import Pattern
from otel_zernel_libraries.conditions.values import Value, text_of

Test = Callable[[Item], bool]
MatchType = Literal["strict", "regexp"]
Int64 = Annotated[int, Field(ge=-(2**63), lt=2**63)]


def parse_severity(value: object) -> int:
    """The number of a severity, written as number or short name: 13 or WARN. Raises `ValueError`."""
    text = str(value).strip().upper()
    if text.isdecimal() and 1 <= int(text) <= 24:
        return int(text)
    if SEVERITIES.get(text):
        return SEVERITIES[text]
    raise ValueError(f"not a severity: {quoted(str(value))}{suggestion(text, SEVERITIES, 'severities')}")


class AttributeMatch(Section):
    """An attribute that must be present, with this value if one is given."""

    key: str = Field(min_length=1)
    value: bool | Int64 | float | str | None = None
    """With `match_type: regexp`, an expression that is found in the attribute's value, written as text."""


class LibraryMatch(Section):
    """An instrumentation scope. Without a version, any version matches."""

    name: str
    version: str | None = None


class SeverityMatch(Section):
    """The severities that match."""

    min: Annotated[int, BeforeValidator(parse_severity)]
    """The lowest one: a number from 1 to 24, or a name such as `WARN`."""
    match_undefined: bool = False
    """Whether log records without a severity match."""


class RegexpOptions(Section):
    """Accepted as in the OpenTelemetry Collector, without an effect: results for short texts are always cached."""

    cacheenabled: bool = False
    cachemaxnumentries: int = Field(default=0, ge=0)


class MatchProperties(Section):
    """Properties that an item must have, all of them. In each list, one match is enough, but attributes and resources
    must all match. A property that a signal does not have never matches."""

    match_type: MatchType
    regexp: RegexpOptions = RegexpOptions.model_construct()
    services: tuple[str, ...] = ()
    """Values of the resource attribute `service.name`."""
    resources: tuple[AttributeMatch, ...] = ()
    libraries: tuple[LibraryMatch, ...] = ()
    """Instrumentation scopes."""
    attributes: tuple[AttributeMatch, ...] = ()
    """Attributes of data points, spans or log records."""
    metric_names: tuple[str, ...] = ()
    span_names: tuple[str, ...] = ()
    span_kinds: tuple[str, ...] = ()
    """`Internal`, `Server`, `Client`, `Producer`, `Consumer`."""
    log_bodies: tuple[str, ...] = ()
    """Bodies that are text."""
    log_severity_texts: tuple[str, ...] = ()
    log_severity_number: SeverityMatch | None = None

    @model_validator(mode="after")
    def _is_usable(self) -> "MatchProperties":
        if not any(getattr(self, name) for name in type(self).model_fields if name not in ("match_type", "regexp")):
            raise ValueError("set at least one property to match, such as attributes, resources or metric_names")
        if self.match_type == "strict" and (unknown := set(self.span_kinds) - set(SPAN_KINDS.values())):
            word = min(unknown)
            raise ValueError(f"unknown span kind {quoted(word)}{suggestion(word, SPAN_KINDS.values(), 'kinds')}")
        properties_test(self, "metrics")  # compiles the expressions
        return self

    @property
    def signals(self) -> frozenset[Signal]:
        """The signals whose items have all of these properties."""
        needed = {_SIGNALS[name] for name in _SIGNALS if getattr(self, name)}
        return frozenset(signal for signal in _ITEMS if needed <= {signal})


_SIGNALS: Mapping[str, Signal] = {
    "metric_names": "metrics",
    "span_names": "traces",
    "span_kinds": "traces",
    "log_bodies": "logs",
    "log_severity_texts": "logs",
    "log_severity_number": "logs",
}
_ITEMS: Mapping[Signal, Context] = {"metrics": "datapoint", "traces": "span", "logs": "log"}


def selection_test(include: MatchProperties | None, exclude: MatchProperties | None, signal: Signal) -> Test | None:
    """Whether an item is included and not excluded; None if all are. The innermost items are tested."""
    included = properties_test(include, signal) if include else None
    excluded = properties_test(exclude, signal) if exclude else None
    if included and excluded:
        return lambda item: included(item) and not excluded(item)
    return included or (inverted(excluded) if excluded else None)


def inverted(test: Test) -> Test:
    """The opposite of a test."""
    return lambda item: not test(item)


def properties_test(properties: MatchProperties, signal: Signal) -> Test:
    """Whether an item has all properties. Raises `ValueError` if an expression is wrong."""
    kind = properties.match_type
    tests: dict[str, Test] = {}
    if properties.services:
        tests["services"] = text_test(properties.services, kind, attribute_reader("resource", "service.name"))
    if properties.resources:
        tests["resources"] = attributes_test(properties.resources, kind, "resource")
    if properties.libraries:
        tests["libraries"] = _libraries_test(properties.libraries, kind)
    if properties.attributes:
        tests["attributes"] = attributes_test(properties.attributes, kind, _ITEMS[signal])
    tests |= _own_tests(properties)
    if any(_SIGNALS.get(name, signal) != signal for name in tests):
        return lambda item: False
    every = tuple(tests.values())
    return every[0] if len(every) == 1 else lambda item: all(test(item) for test in every)


def _own_tests(properties: MatchProperties) -> dict[str, Test]:
    """The tests of properties that one signal has."""
    texts: dict[str, Callable[[Item], Value]] = {
        "metric_names": lambda item: item.metric.name,
        "span_names": lambda item: item.span.name,
        "span_kinds": lambda item: SPAN_KINDS.get(item.span.kind, ""),
        "log_bodies": lambda item: item.log.body.string_value if item.log.body.HasField("string_value") else None,
        "log_severity_texts": lambda item: item.log.severity_text,
    }
    wanted = {name: getattr(properties, name) for name in texts}
    tests = {name: text_test(given, properties.match_type, texts[name]) for name, given in wanted.items() if given}
    if properties.log_severity_number:
        tests["log_severity_number"] = severity_test(properties.log_severity_number)
    return tests


def severity_test(wanted: SeverityMatch) -> Test:
    """Whether a log record is severe enough."""
    return lambda item: item.log.severity_number >= wanted.min if item.log.severity_number else wanted.match_undefined


def text_test(wanted: Sequence[str], match_type: MatchType, read: Callable[[Item], Value]) -> Test:
    """Whether a text is one of these, or one of these expressions is found in it. Raises `ValueError`."""
    matches = _text_matcher(wanted, match_type)

    def test(item: Item) -> bool:
        value = read(item)
        return isinstance(value, str) and matches(value)

    return test


def _text_matcher(wanted: Sequence[str], match_type: MatchType) -> Callable[[str], bool]:
    if match_type == "strict":
        return frozenset(wanted).__contains__
    patterns = [Pattern(text).is_found_in for text in wanted]
    return patterns[0] if len(patterns) == 1 else lambda text: any(pattern(text) for pattern in patterns)


def attributes_test(wanted: Sequence[AttributeMatch], match_type: MatchType, context: Context) -> Test:
    """Whether a message of this context has all of these attributes. Raises `ValueError`."""
    read = attributes_reader(context)
    tests = [(match.key, _value_test(match, match_type)) for match in wanted]

    def test(item: Item) -> bool:
        attributes = read(item)
        return all(key in attributes and matches(attributes[key]) for key, matches in tests)

    return test


def _value_test(wanted: AttributeMatch, match_type: MatchType) -> Callable[[Value], bool]:
    expected = wanted.value
    if expected is None:
        return lambda value: True
    if match_type == "strict":
        return lambda value: type(value) is type(expected) and value == expected
    if not isinstance(expected, str):
        raise ValueError(f"{wanted.key}: with match_type regexp, the value must be a text, not {expected}")
    is_in_text = Pattern(expected).is_found_in
    return lambda value: isinstance(value, bool | int | float | str) and is_in_text(text_of(value))


def _libraries_test(wanted: Sequence[LibraryMatch], match_type: MatchType) -> Test:
    tests = [
        (
            _text_matcher([library.name], match_type),
            (lambda version: True) if library.version is None else _text_matcher([library.version], match_type),
        )
        for library in wanted
    ]
    return lambda item: any(named(item.scope.name) and versioned(item.scope.version) for named, versioned in tests)
