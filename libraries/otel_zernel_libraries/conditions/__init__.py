"""Conditions on metrics, data points, spans and log records: a part of OTTL, and include/exclude properties.

Processors share this room. A condition is compiled once, when the configuration is read, into a function of an `Item`.
"""

from otel_zernel_libraries.conditions.compiling import Condition, Values, compile_condition
from otel_zernel_libraries.conditions.config import (
    AttributeMatch,
    MatchProperties,
    RegexpOptions,
    SeverityMatch,
    attributes_test,
    inverted,
    properties_test,
    selection_test,
    severity_test,
    text_test,
)
from otel_zernel_libraries.conditions.errors import ConditionFailed, InvalidCondition, InvalidPattern
from otel_zernel_libraries.conditions.fields import CONTEXTS_OF, Context, inferred_context, message_of
from otel_zernel_libraries.conditions.item import Item
from otel_zernel_libraries.conditions.layout import LAYOUTS, Layout
from otel_zernel_libraries.conditions.patterns import Pattern, expand
from otel_zernel_libraries.conditions.syntax import (
    Constant,
    FieldPath,
    FunctionCall,
    ValueList,
    ValueNode,
    parse_condition,
    parse_statement,
)
from otel_zernel_libraries.conditions.values import Value, from_any_value, text_of, to_any_value

__all__ = [
    "CONTEXTS_OF",
    "LAYOUTS",
    "AttributeMatch",
    "Condition",
    "ConditionFailed",
    "Constant",
    "Context",
    "FieldPath",
    "FunctionCall",
    "InvalidCondition",
    "InvalidPattern",
    "Item",
    "Layout",
    "MatchProperties",
    "Pattern",
    "RegexpOptions",
    "SeverityMatch",
    "Value",
    "ValueList",
    "ValueNode",
    "Values",
    "attributes_test",
    "compile_condition",
    "expand",
    "from_any_value",
    "inferred_context",
    "inverted",
    "message_of",
    "parse_condition",
    "parse_statement",
    "properties_test",
    "selection_test",
    "severity_test",
    "text_of",
    "text_test",
    "to_any_value",
]
