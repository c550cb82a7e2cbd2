"""Conditions on metrics, data points, spans and log records: a part of OTTL, and include/exclude properties.

Processors share this room. A condition is compiled once, when the configuration is read, into a function of an `Item`.
"""

from otel_zernel_libraries.conditions.compiling import Condition as Condition
from otel_zernel_libraries.conditions.compiling import Values as Values
from otel_zernel_libraries.conditions.compiling import compile_condition as compile_condition
from otel_zernel_libraries.conditions.config import AttributeMatch as AttributeMatch
from otel_zernel_libraries.conditions.config import MatchProperties as MatchProperties
from otel_zernel_libraries.conditions.config import RegexpOptions as RegexpOptions
from otel_zernel_libraries.conditions.config import SeverityMatch as SeverityMatch
from otel_zernel_libraries.conditions.config import attributes_test as attributes_test
from otel_zernel_libraries.conditions.config import inverted as inverted
from otel_zernel_libraries.conditions.config import properties_test as properties_test
from otel_zernel_libraries.conditions.config import selection_test as selection_test
from otel_zernel_libraries.conditions.config import severity_test as severity_test
from otel_zernel_libraries.conditions.config import text_test as text_test
from otel_zernel_libraries.conditions.errors import ConditionFailed as ConditionFailed
from otel_zernel_libraries.conditions.errors import InvalidCondition as InvalidCondition
from otel_zernel_libraries.conditions.errors import InvalidPattern as InvalidPattern
from otel_zernel_libraries.conditions.fields import CONTEXTS_OF as CONTEXTS_OF
from otel_zernel_libraries.conditions.fields import Context as Context
from otel_zernel_libraries.conditions.fields import inferred_context as inferred_context
from otel_zernel_libraries.conditions.fields import message_of as message_of
from otel_zernel_libraries.conditions.guarding import ErrorGuard as ErrorGuard
from otel_zernel_libraries.conditions.guarding import ErrorMode as ErrorMode
from otel_zernel_libraries.conditions.item import Item as Item
from otel_zernel_libraries.conditions.layout import LAYOUTS as LAYOUTS
from otel_zernel_libraries.conditions.layout import Layout as Layout
from otel_zernel_libraries.conditions.patterns import Pattern as Pattern
from otel_zernel_libraries.conditions.patterns import expand as expand
from otel_zernel_libraries.conditions.syntax import Constant as Constant
from otel_zernel_libraries.conditions.syntax import FieldPath as FieldPath
from otel_zernel_libraries.conditions.syntax import FunctionCall as FunctionCall
from otel_zernel_libraries.conditions.syntax import ValueList as ValueList
from otel_zernel_libraries.conditions.syntax import ValueNode as ValueNode
from otel_zernel_libraries.conditions.syntax import parse_condition as parse_condition
from otel_zernel_libraries.conditions.syntax import parse_statement as parse_statement
from otel_zernel_libraries.conditions.values import Value as Value
from otel_zernel_libraries.conditions.values import from_any_value as from_any_value
from otel_zernel_libraries.conditions.values import text_of as text_of
from otel_zernel_libraries.conditions.values import to_any_value as to_any_value
