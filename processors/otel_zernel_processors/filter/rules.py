"""The rules by which items are dropped, compiled from the configuration."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial

from otel_zernel.batch import Signal
from otel_zernel.component import Context as Services
from otel_zernel_libraries import conditions
from otel_zernel_processors.filter.config import FilterConfig, MetricMatch

Test = Callable[[conditions.Item], bool]
Rules = Mapping[conditions.Context, tuple[Test, ...]]


def rules_of(config: FilterConfig, signal: Signal, services: Services) -> Rules:
    """The tests of one signal, by context. An item is dropped if one of its tests is true."""
    rules: dict[conditions.Context, list[Test]] = {}
    for context, test in [*_selections(config, signal), *_conditions(config, signal, services)]:
        rules.setdefault(context, []).append(test)
    return {context: tuple(tests) for context, tests in rules.items()}


def _conditions(config: FilterConfig, signal: Signal, services: Services) -> Iterator[tuple[conditions.Context, Test]]:
    for context, texts in config.conditions(signal).items():
        for text in texts:
            yield context, _guarded(conditions.compile_condition(text, context), config.error_mode, services)
    for group in config.groups(signal):
        for text in group.conditions:
            condition = conditions.compile_condition(text, group.context, signal)
            yield condition.context, _guarded(condition, group.error_mode or config.error_mode, services)


def _guarded(condition: conditions.Condition, mode: conditions.ErrorMode, services: Services) -> Test:
    """A condition that is false where it cannot be evaluated, unless errors are to be raised."""

    def warn(text: str, failed: conditions.ConditionFailed) -> None:
        services.logger.warning("A condition does not fit some items, and does not drop them: %s: %s", text, failed)

    return partial(conditions.ErrorGuard(condition.text, mode, warn).holds, condition.holds)


def _selections(config: FilterConfig, signal: Signal) -> Iterator[tuple[conditions.Context, Test]]:
    """The tests of `include` and `exclude`."""
    match signal:
        case "metrics":
            yield from metric_tests(config.metrics.include, included=True)
            yield from metric_tests(config.metrics.exclude, included=False)
        case "traces":
            if wanted := conditions.selection_test(config.spans.include, config.spans.exclude, "traces"):
                yield "span", conditions.inverted(wanted)
        case "logs":
            include, exclude = config.logs.include, config.logs.exclude
            wanted = conditions.selection_test(
                include.properties() if include else None, exclude.properties() if exclude else None, "logs"
            )
            if wanted:
                yield "log", conditions.inverted(wanted)


def metric_tests(match: MetricMatch | None, included: bool) -> Iterator[tuple[conditions.Context, Test]]:
    """As in the OpenTelemetry Collector, resources and names are tested apart: to exclude, one of them is enough."""
    if match is None or match.match_type == "expr":
        return
    if match.resource_attributes:
        test = conditions.attributes_test(match.resource_attributes, match.match_type, "resource")
        yield "resource", conditions.inverted(test) if included else test
    if match.metric_names:
        test = conditions.text_test(match.metric_names, match.match_type, lambda item: item.metric.name)
        yield "metric", conditions.inverted(test) if included else test
