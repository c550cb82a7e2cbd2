"""The configuration of the transform processor. The keys are those of the OpenTelemetry Collector."""

from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from otel_zernel.batch import Signal
from otel_zernel.component import ComponentConfig
from otel_zernel.types import Section
from otel_zernel_libraries.conditions import CONTEXTS_OF, Context, ErrorMode, compile_condition
from otel_zernel_processors.transform.statements import compile_statement


class StatementGroup(Section):
    """Statements with settings of their own."""

    context: Context | None = None
    """The context of all statements. Without it, each field is written with its context, such as `span.name`."""
    error_mode: ErrorMode | None = None
    """Replaces the processor's `error_mode`."""
    conditions: tuple[str, ...] = ()
    """If given, the statements run only where one of these conditions holds."""
    statements: tuple[str, ...] = Field(min_length=1)


def _one(value: Any) -> Any:
    """A group of the one statement that stands in the list as a text."""
    return {"statements": [value]} if isinstance(value, str) else value


def _of(signal: Signal) -> AfterValidator:
    """Checks a group about items of a signal."""

    def check(group: StatementGroup) -> StatementGroup:
        if group.context and group.context not in CONTEXTS_OF[signal]:
            raise ValueError(f"{signal} have no context {group.context}; valid: {', '.join(CONTEXTS_OF[signal])}")
        for text in group.statements:
            statement = compile_statement(text, group.context, signal)
            for condition in group.conditions:
                compile_condition(condition, group.context or statement.context, signal)
        return group

    return AfterValidator(check)


class TransformConfig(ComponentConfig):
    """Statements for each signal, in order. Each changes all items of its context before the next one runs."""

    error_mode: ErrorMode = "ignore"
    """If a statement fails on an item: `ignore` logs it once and goes on, `silent` does not log it, and `propagate`
    drops the batch."""
    metric_statements: tuple[Annotated[StatementGroup, BeforeValidator(_one), _of("metrics")], ...] = ()
    trace_statements: tuple[Annotated[StatementGroup, BeforeValidator(_one), _of("traces")], ...] = ()
    log_statements: tuple[Annotated[StatementGroup, BeforeValidator(_one), _of("logs")], ...] = ()

    def groups(self, signal: Signal) -> tuple[StatementGroup, ...]:
        """The groups of one signal."""
        statement_groups: tuple[StatementGroup, ...] = {
            "metrics": self.metric_statements,
            "traces": self.trace_statements,
            "logs": self.log_statements,
        }[signal]
        return statement_groups

    @model_validator(mode="after")
    def _does_something(self) -> "TransformConfig":
        if not any(map(self.groups, CONTEXTS_OF)):
            raise ValueError("nothing to do: set metric_statements, trace_statements or log_statements")
        return self
