"""What can go wrong, named after the situation.

ZernelError
├── ConfigError       the configuration is wrong; holds every mistake found
├── CannotStart       the world is not as the configuration needs it (a taken port, a missing file)
├── DecodeError       bytes that are no OTLP
├── Refused           downstream takes nothing now; offer the same batch again later
├── Rejected          downstream will never take this batch
├── Retryable         an export failed and may succeed later
├── Permanent         an export failed and always will
└── PartialScrape     a scrape that got some of what it wanted
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # batch.py raises DecodeError
    from otel_zernel.batch import Batch


class ZernelError(Exception):
    """The root of the tree above."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake in a configuration: where (joined by ``::``), what, and the file and line if YAML gave them."""

    path: str
    message: str
    source: str | None = None

    def __str__(self) -> str:
        where = f" ({self.source})" if self.source else ""
        return f"{self.path}: {self.message}{where}" if self.path else f"{self.message}{where}"


class ConfigError(ZernelError):
    """A configuration that cannot be used. ``problems`` lists every mistake, in the file's order."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems


class CannotStart(ZernelError):
    """A component cannot do its work. The message is one sentence that names the thing and what to do."""


class DecodeError(ZernelError):
    """Bytes that do not decode to the OTLP message they should be."""


class Refused(ZernelError):
    """Downstream takes nothing now. Nothing of the batch was taken; offer it again, after `after` s if given."""

    def __init__(self, message: str = "", after: float | None = None) -> None:
        super().__init__(message)
        self.after = after


class Rejected(ZernelError):
    """Downstream will never take this batch; it has been counted as lost."""


class Retryable(ZernelError):
    """An export failed for now. The next attempt comes no sooner than `after` s, if given."""

    def __init__(self, message: str, after: float | None = None) -> None:
        super().__init__(message)
        self.after = after


class Permanent(ZernelError):
    """An export failed and would fail again: the batch is dropped and counted."""


class PartialScrape(ZernelError):
    """A scrape that got `batch` and failed for `errors` points."""

    def __init__(self, message: str, batch: "Batch", errors: int) -> None:
        super().__init__(message)
        self.batch = batch
        self.errors = errors
