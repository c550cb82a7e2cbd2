"""What happens where a condition or a statement cannot be evaluated."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from otel_zernel.text import one_line
from otel_zernel_libraries.conditions.errors import ConditionFailed
from otel_zernel_libraries.conditions.item import Item

ErrorMode = Literal["ignore", "silent", "propagate"]
"""`ignore` logs the first failure and goes on, `silent` does not log it, and `propagate` raises it."""


@dataclass(slots=True)
class ErrorGuard:
    """The failures of one condition or statement."""

    text: str
    """The condition or the statement."""
    mode: ErrorMode
    warn: Callable[[str, ConditionFailed], None]
    """Logs the text and the reason."""
    _warned: bool = field(default=False, init=False)

    def holds(self, test: Callable[[Item], bool], item: Item) -> bool:
        """The result of the test. False if it fails, unless the mode is `propagate`: raises `ConditionFailed`."""
        try:
            return test(item)
        except ConditionFailed as failed:
            if self.mode == "propagate":
                raise ConditionFailed(f"{one_line(self.text)}: {failed}") from None
            if self.mode == "ignore" and not self._warned:
                self._warned = True
                self.warn(self.text, failed)
            return False
