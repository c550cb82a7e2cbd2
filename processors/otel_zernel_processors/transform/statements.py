"""Compiles statements such as `set(span.name, "x") where span.kind == SPAN_KIND_CLIENT`."""

from collections.abc import Callable
from dataclasses import dataclass

from otel_zernel.batch import Signal
from otel_zernel.text import quoted, suggestion
from otel_zernel_libraries.conditions import Context, InvalidCondition, Item, Values, parse_statement
from otel_zernel_processors.transform.editors import EDITORS, Edit


@dataclass(frozen=True, slots=True)
class CompiledStatement:
    """A statement about the items of one context."""

    text: str
    context: Context
    where: Callable[[Item], bool] | None
    edit: Edit

    def changes(self, item: Item) -> bool:
        """Whether the statement would change the item. Raises `ConditionFailed`."""
        return (self.where is None or self.where(item)) and self.edit.changes(item)

    def apply(self, item: Item) -> None:
        """Changes the item, whose messages are editable. Raises `ConditionFailed`."""
        if self.where is None or self.where(item):
            self.edit.apply(item)


def compile_statement(text: str, context: Context | None, signal: Signal) -> CompiledStatement:
    """Compiles a statement about the items of a context, or of the innermost field. Raises `InvalidCondition`."""
    tree = parse_statement(text)
    values = Values(text, context, signal)
    builder = EDITORS.get(tree.editor.name)
    if builder is None:
        hint = suggestion(tree.editor.name, EDITORS, "functions")
        raise values.mistake(f"the function {quoted(tree.editor.name)} is not supported{hint}", tree.editor)
    where = values.test(tree.where) if tree.where else None
    try:
        edit = builder(values, tree.editor)
    except InvalidCondition:
        raise
    except ValueError as error:
        raise values.mistake(str(error), tree.editor) from None
    if edit.context:
        values.imply(edit.context)
    if edit.context and edit.context != values.context:
        raise values.mistake(f"{tree.editor.name} is for the context {edit.context}, not {values.context}", tree.editor)
    return CompiledStatement(text, values.context, where, edit)
