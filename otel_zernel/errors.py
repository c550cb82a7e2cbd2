"""The errors of the collector, named after situations.

ZernelError
├── ConfigError       the configuration is wrong; lists every mistake
├── CannotStart       a requirement of the configuration is not met (a port is taken, a file is missing)
├── ReceiverFailed    a receiver cannot go on, for a reason outside of it; it starts again after a while
├── DecodeError       bytes are not valid OTLP
├── Refused           downstream accepts nothing at the moment; emit the same batch again later
├── Rejected          downstream will never accept this batch
├── Retryable         an export failed and may succeed later
│   └── Correctable   it succeeds when somebody corrects a setting
├── Permanent         an export failed and always will
├── NoAnswer          a server gives no usable answer at the moment
└── PartialScrape     a scrape read only some of its points (in `component`)
"""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from otel_zernel.text import printable


class ZernelError(Exception):
    """The root of the tree above."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake in a configuration."""

    path: str
    """The key, joined by `::`."""
    message: str
    source: str | None = None
    """File and line, if the mistake is in a YAML file."""

    def __str__(self) -> str:
        where = f" ({printable(self.source)})" if self.source else ""
        return f"{self.path}: {self.message}{where}" if self.path else f"{self.message}{where}"


class ConfigError(ZernelError):
    """A configuration that cannot be used. `problems` lists every mistake, in the order of the file."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems


class CannotStart(ZernelError):
    """A component cannot work. The message is one sentence that names the cause and the remedy."""

    @property
    def address_is_taken(self) -> bool:
        """Whether another program listens on the address."""
        return isinstance(self.__cause__, OSError) and self.__cause__.errno == errno.EADDRINUSE


class ReceiverFailed(ZernelError):
    """A running receiver cannot go on. The message is one sentence that names the cause and the remedy.

    It is restarted with backoff, and its health shows the sentence meanwhile.
    """


class DecodeError(ZernelError):
    """Bytes that do not decode to the expected OTLP message."""


class Refused(ZernelError):
    """Downstream accepted no part of the batch. Emit it again, no sooner than `after` s if that is given."""

    def __init__(self, message: str = "", after: float | None = None) -> None:
        super().__init__(message)
        self.after = after


class Rejected(ZernelError):
    """Downstream will never accept this batch. It is counted as lost."""


class Retryable(ZernelError):
    """An export failed and may succeed later, no sooner than after `after` s if that is given."""

    def __init__(self, message: str, after: float | None = None) -> None:
        super().__init__(message)
        self.after = after


class Correctable(Retryable):
    """An export failed because of an endpoint, a credential or a proxy. Somebody has to correct it."""

    def __init__(self, message: str, code: str, after: float | None = None) -> None:
        """`code` is the kind of the answer, such as `401`. The rest of the message may differ from answer to answer."""
        super().__init__(message, after)
        self.code = code


class Permanent(ZernelError):
    """An export failed and would fail again. The batch is dropped and counted."""


class Unwanted(Permanent):
    """The server takes no batches of this signal. The exporter says so in the log and in its health: each dropped batch
    is only counted."""


class NoAnswer(ZernelError):
    """A server, or another engine, gives no usable answer now. Whether it has done the work is unknown; ask later."""


@contextmanager
def invalid_is_permanent() -> Iterator[None]:
    """Raises `Permanent` for `DecodeError`: an exporter can never export bytes that are not valid OTLP."""
    try:
        yield
    except DecodeError as error:
        raise Permanent(f"the batch is not valid OTLP: {error}") from error
