"""What the child reports when it cannot do what the configuration says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

LONGEST = 4000
"""Characters of a detail, such as the compiler's output."""
_BYTES = re.compile(r"\bb'([^']*)'")
"""BCC quotes names as Python writes bytes."""


class ChildProblem(Exception):
    """One problem. The collector makes a sentence of its kind."""

    def __init__(self, detail: str, kind: str, place: str = "") -> None:
        """`place` is the key below the receiver: `programs::block::attach::0`."""
        super().__init__(detail, kind, place)
        self.kind = kind
        self.detail = detail
        self.place = place

    def as_message(self) -> dict[str, Any]:
        """The problem as JSON has it."""
        return {"kind": self.kind, "detail": self.detail[:LONGEST], "place": self.place}


@contextmanager
def reported_as(kind: str, place: str, expected: type[Exception] = Exception) -> Iterator[None]:
    """Raises a `ChildProblem` for an expected error. BCC raises plain `Exception` for most of its own."""
    try:
        yield
    except expected as error:
        text = _BYTES.sub(r"\1", " ".join(str(error).split()))
        raise ChildProblem(text or type(error).__name__, kind, place) from error
