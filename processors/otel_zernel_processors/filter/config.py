"""The configuration of the filter processor. The keys are those of the OpenTelemetry Collector."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from otel_zernel.batch import Signal
from otel_zernel.component import ComponentConfig
from otel_zernel.types import Section
from otel_zernel_libraries.conditions import (
    AttributeMatch,
    Context,
    ErrorMode,
    MatchProperties,
    RegexpOptions,
    SeverityMatch,
    attributes_test,
    compile_condition,
    text_test,
)


def _about(context: Context) -> AfterValidator:
    """Checks a condition about the items of a context."""

    def check(text: str) -> str:
        compile_condition(text, context)
        return text

    return AfterValidator(check)


class ConditionGroup(Section):
    """Conditions with settings of their own."""

    context: Context | None = None
    """The context of all conditions. Without it, each field is written with its context, such as `span.name`."""
    error_mode: ErrorMode | None = None
    """Replaces the processor's `error_mode`."""
    conditions: tuple[str, ...] = Field(min_length=1)


def _one(value: Any) -> Any:
    """A group of the one condition that stands in the list as a text."""
    return {"conditions": [value]} if isinstance(value, str) else value


def _of(signal: Signal) -> AfterValidator:
    """Checks a group about items of a signal, whose context may be inferred."""

    def check(group: ConditionGroup) -> ConditionGroup:
        for text in group.conditions:
            compile_condition(text, group.context, signal)
        return group

    return AfterValidator(check)


class MetricMatch(Section):
    """Metrics, by name and by attributes of their resource."""

    match_type: Literal["strict", "regexp", "expr"]
    regexp: RegexpOptions = RegexpOptions.model_construct()
    metric_names: tuple[str, ...] = ()
    resource_attributes: tuple[AttributeMatch, ...] = ()
    """All of them must match."""
    expressions: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _is_supported(self) -> "MetricMatch":
        if self.match_type == "expr" or self.expressions:
            raise ValueError("match_type expr is not supported; write conditions in metrics::metric or datapoint")
        text_test(self.metric_names, self.match_type, lambda item: "")
        attributes_test(self.resource_attributes, self.match_type, "resource")
        return self


class LogMatch(Section):
    """Log records: all of the given properties must match."""

    match_type: Literal["strict", "regexp"] = "strict"
    resource_attributes: tuple[AttributeMatch, ...] = ()
    record_attributes: tuple[AttributeMatch, ...] = ()
    severity_texts: tuple[str, ...] = ()
    severity_number: SeverityMatch | None = None
    bodies: tuple[str, ...] = ()

    def properties(self) -> MatchProperties | None:
        """The same as properties of any signal; None if there are none."""
        given: dict[str, Any] = {
            "resources": self.resource_attributes,
            "attributes": self.record_attributes,
            "log_severity_texts": self.severity_texts,
            "log_severity_number": self.severity_number,
            "log_bodies": self.bodies,
        }
        return MatchProperties(match_type=self.match_type, **given) if any(given.values()) else None

    @model_validator(mode="after")
    def _is_usable(self) -> "LogMatch":
        self.properties()
        return self


class MetricFilters(Section):
    """Drops resources, metrics and data points for which a condition holds, or selects metrics by name."""

    include: MetricMatch | None = None
    exclude: MetricMatch | None = None
    regexp: RegexpOptions = RegexpOptions.model_construct()
    resource: tuple[Annotated[str, _about("resource")], ...] = ()
    metric: tuple[Annotated[str, _about("metric")], ...] = ()
    datapoint: tuple[Annotated[str, _about("datapoint")], ...] = ()


class LogFilters(Section):
    """Drops resources and log records for which a condition holds, or selects log records by properties."""

    include: LogMatch | None = None
    exclude: LogMatch | None = None
    resource: tuple[Annotated[str, _about("resource")], ...] = ()
    log_record: tuple[Annotated[str, _about("log")], ...] = ()


class SpanFilters(Section):
    """Selects spans by properties."""

    include: MatchProperties | None = None
    exclude: MatchProperties | None = None


class TraceFilters(Section):
    """Drops resources, spans and span events for which a condition holds."""

    resource: tuple[Annotated[str, _about("resource")], ...] = ()
    span: tuple[Annotated[str, _about("span")], ...] = ()
    spanevent: tuple[Annotated[str, _about("spanevent")], ...] = ()


class FilterConfig(ComponentConfig):
    """What to drop. An item is dropped if one of its conditions holds."""

    error_mode: ErrorMode = "ignore"
    """If a condition cannot be evaluated on an item: `ignore` logs it once and treats the condition as false, `silent`
    does not log it, and `propagate` drops the batch."""
    metrics: MetricFilters = MetricFilters.model_construct()
    logs: LogFilters = LogFilters.model_construct()
    spans: SpanFilters = SpanFilters.model_construct()
    traces: TraceFilters = TraceFilters.model_construct()
    metric_conditions: tuple[Annotated[ConditionGroup, BeforeValidator(_one), _of("metrics")], ...] = ()
    trace_conditions: tuple[Annotated[ConditionGroup, BeforeValidator(_one), _of("traces")], ...] = ()
    log_conditions: tuple[Annotated[ConditionGroup, BeforeValidator(_one), _of("logs")], ...] = ()

    def conditions(self, signal: Signal) -> Mapping[Context, tuple[str, ...]]:
        """The conditions in the sections `metrics`, `traces` and `logs`, by context."""
        match signal:
            case "metrics":
                of_metrics = self.metrics
                return {"resource": of_metrics.resource, "metric": of_metrics.metric, "datapoint": of_metrics.datapoint}
            case "traces":
                two = self.traces
                return {"resource": two.resource, "span": two.span, "spanevent": two.spanevent}
            case "logs":
                return {"resource": self.logs.resource, "log": self.logs.log_record}
            case _:
                return {}

    def groups(self, signal: Signal) -> tuple[ConditionGroup, ...]:
        """The conditions whose context is inferred."""
        condition_groups: tuple[ConditionGroup, ...] = {
            "metrics": self.metric_conditions,
            "traces": self.trace_conditions,
            "logs": self.log_conditions,
        }[signal]
        return condition_groups

    @model_validator(mode="after")
    def _uses_one_style(self) -> "FilterConfig":
        selections: Mapping[Signal, Any] = {"metrics": self.metrics, "traces": self.spans, "logs": self.logs}
        for signal, selection in selections.items():
            name = "spans" if signal == "traces" else signal
            styles = {
                f"{name}::include and exclude": bool(selection.include or selection.exclude),
                f"conditions in {signal}": any(self.conditions(signal).values()),
                f"{signal.removesuffix('s')}_conditions": bool(self.groups(signal)),
            }
            used = [style for style, is_used in styles.items() if is_used]
            if len(used) > 1:
                raise ValueError(f"use only one of these for {signal}: {', '.join(used)}")
        return self
