"""The ways in which a condition can be wrong."""

from otel_zernel.errors import ZernelError
from otel_zernel.text import one_line


class InvalidCondition(ValueError):
    """A condition that cannot be compiled. The message names the character, counted from 1, and the text."""

    def __init__(self, problem: str, text: str, position: int) -> None:
        """`position` counts from 0."""
        super().__init__(f"character {position + 1} of '{one_line(text)}': {problem}")


class InvalidPattern(ValueError):
    """A regular expression that RE2, or Python's `re` in its place, does not accept. The message says why."""


class ConditionFailed(ZernelError):
    """A condition cannot be evaluated on one item, for example because a text was expected and a number was found."""
