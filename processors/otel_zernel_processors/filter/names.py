"""Which metrics are dropped for their name alone, so that validation does not warn of them."""

from collections.abc import Iterator

from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric

from otel_zernel_libraries.conditions import Condition, ConditionFailed, Context, Item, compile_condition
from otel_zernel_processors.filter.config import FilterConfig
from otel_zernel_processors.filter.rules import metric_tests

_ABOUT_MORE = (
    "resource",
    "scope",
    "attr",
    "datapoint",
    "type",
    "unit",
    "description",
    "temporality",
    "monotonic",
    "len",
)
"""Parts of the names of fields and functions, in lower case, that concern more than the name."""


def drops_name(config: FilterConfig, name: str) -> bool:
    """Whether every metric of this name is dropped. False if that depends on anything else."""
    item = Item(metric=Metric(name=name))
    return any(_holds(condition, item) for condition in _conditions(config)) or _is_not_selected(config, item)


def _conditions(config: FilterConfig) -> Iterator[Condition]:
    """The conditions about names alone."""
    texts: list[tuple[str, Context | None]] = [(text, "metric") for text in config.metrics.metric]
    texts += [(text, one.context) for one in config.groups("metrics") for text in one.conditions]
    for text, context in texts:
        if not any(part in text.lower() for part in _ABOUT_MORE):
            yield compile_condition(text, context, "metrics")


def _holds(condition: Condition, item: Item) -> bool:
    try:
        return condition.holds(item)
    except ConditionFailed:
        return False


def _is_not_selected(config: FilterConfig, item: Item) -> bool:
    return any(
        test(item)
        for match, included in ((config.metrics.include, True), (config.metrics.exclude, False))
        if match is None or not match.resource_attributes
        for _, test in metric_tests(match, included)
    )
