"""The rules by which items are dropped, compiled from the configuration."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from otel_zernel.batch import Signal
from otel_zernel.component import Context as Services
from otel_zernel.text import one_line
from otel_zernel_libraries import conditions
from otel_zernel_processors.filter.config import ErrorMode, FilterConfig, MetricMatch

Test = Callable[[conditions.Item], bool]
Rules = Mapping[conditions.Context, tuple[Test, ...]]


@dataclass(slots=True)
class GuardedCondition:
    """A condition that is false where it cannot be evaluated, unless errors are to be raised."""

    condition: conditions.Condition
    mode: ErrorMode
    services: Services
    _warned: bool = field(default=False, init=False)

    def __call__(self, item: conditions.Item) -> bool:
        try:
            return self.condition.holds(item)
        except conditions.ConditionFailed as failed:
            if self.mode == "propagate":
                raise conditions.ConditionFailed(f"{one_line(self.condition.text)}: {failed}") from None
            if self.mode == "ignore" and not self._warned:
                self._warned = True
                self.services.logger.warning(
                    "A condition does not fit some items, and does not drop them: %s: %s", self.condition.text, failed
                )
            return False


def rules_of(config: FilterConfig, signal: Signal, services: Services) -> Rules:
    """The tests of one signal, by context. An item is dropped if one of its tests is true."""
    rules: dict[conditions.Context, list[Test]] = {}
    for context, test in [*_selections(config, signal), *_conditions(config, signal, services)]:
        rules.setdefault(context, []).append(test)
    return {context: tuple(tests) for context, tests in rules.items()}


def _conditions(config: FilterConfig, signal: Signal, services: Services) -> Iterator[tuple[conditions.Context, Test]]:
    for context, texts in config.conditions(signal).items():
        for text in texts:
            yield context, GuardedCondition(conditions.compile_condition(text, context), config.error_mode, services)
    for group in config.groups(signal):
        for text in group.conditions:
            condition = conditions.compile_condition(text, group.context, signal)
            yield condition.context, GuardedCondition(condition, group.error_mode or config.error_mode, services)


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
