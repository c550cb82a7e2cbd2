"""The transform processor."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from otel_zernel.batch import Batch, Signal
from otel_zernel.component import ITEMS_AT_ONCE, Context, Processor
from otel_zernel_libraries.conditions import LAYOUTS, ConditionFailed, ErrorGuard, Item, compile_condition
from otel_zernel_processors.transform.config import StatementGroup, TransformConfig
from otel_zernel_processors.transform.statements import CompiledStatement, compile_statement


@dataclass(frozen=True, slots=True)
class GuardedStatement:
    """A statement, the conditions of its group, and what happens if it fails."""

    statement: CompiledStatement
    conditions: Sequence[Callable[[Item], bool]]
    guard: ErrorGuard

    def changes(self, item: Item) -> bool:
        """Whether the statement would change the item."""
        return self.guard.holds(lambda item: self._selects(item) and self.statement.changes(item), item)

    def apply(self, item: Item) -> None:
        """Changes the item, whose messages are editable."""
        self.guard.holds(self._apply, item)

    def _apply(self, item: Item) -> bool:
        if self._selects(item):
            self.statement.apply(item)
        return True

    def _selects(self, item: Item) -> bool:
        return not self.conditions or any(holds(item) for holds in self.conditions)


class TransformProcessor(Processor):
    """Changes metrics, spans and log records by statements."""

    Config = TransformConfig
    stability = "beta"
    items_at_once = ITEMS_AT_ONCE

    def __init__(self, config: TransformConfig, context: Context) -> None:
        super().__init__(config, context)
        self._statements = {signal: list(self._compile(signal)) for signal in LAYOUTS if signal in context.signals}

    @property
    def reads(self) -> Collection[Signal]:
        """The signals that have statements."""
        return [signal for signal, statements in self._statements.items() if statements]

    def process(self, batch: Batch) -> Iterable[Batch]:
        """The batch, edited only if a statement changes an item."""
        try:
            for signal, statements in self._statements.items():
                if statements and batch.count_of(signal):
                    _run(batch, signal, statements)
        except ConditionFailed as failed:
            count = batch.item_count
            self.context.logger.error("Dropped %d items, because error_mode is propagate: %s", count, failed)
            self.context.drop(count, "statement_error")
            return ()
        return (batch,)

    def _compile(self, signal: Signal) -> Iterator[GuardedStatement]:
        for group in self.config.groups(signal):
            yield from self._guarded(group, signal)

    def _guarded(self, group: StatementGroup, signal: Signal) -> Iterator[GuardedStatement]:
        for text in group.statements:
            statement = compile_statement(text, group.context, signal)
            conditions = [compile_condition(where, statement.context, signal).holds for where in group.conditions]
            mode = group.error_mode or self.config.error_mode
            yield GuardedStatement(statement, conditions, ErrorGuard(text, mode, self._warn))

    def _warn(self, text: str, failed: ConditionFailed) -> None:
        message = "A statement does not fit some items, and does not change them: %s: %s"
        self.context.logger.warning(message, text, failed)


def _run(batch: Batch, signal: Signal, statements: Sequence[GuardedStatement]) -> None:
    """Runs the statements. If none of them would change an item as it is, none changes one in any order."""
    for number, statement in enumerate(statements):
        if any(statement.changes(item) for item in _items(batch.message(signal), signal, statement)):
            for later in statements[number:]:
                for item in _items(batch.edit(signal), signal, later):
                    later.apply(item)
            return


def _items(message: Any, signal: Signal, statement: GuardedStatement) -> Iterator[Item]:
    """The same item for each, moved on."""
    item = Item()
    for _ in LAYOUTS[signal].walk(message, statement.statement.context, item):
        yield item
