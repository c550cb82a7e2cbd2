"""The contract of the scrapers: each one reads values, and reports the files that it could not read."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import NamedTuple

from otel_zernel.otlp.points import AttributeValue

PointAttributes = tuple[tuple[str, AttributeValue], ...]


class Reading(NamedTuple):
    """One value of a metric."""

    metric: str
    value: float
    attributes: PointAttributes = ()


class Subject(NamedTuple):
    """The machine or a process: the resource of readings."""

    attributes: PointAttributes
    start_ns: int
    """The start of its sums, in ns since 1970; 0 if it is not known."""


class Limit:
    """The most devices or processes to report. Those beyond are a problem once, not at each scrape."""

    def __init__(self) -> None:
        self._is_known = False

    def exceeded(self, problems: list[str], missing: str, option: str) -> None:
        """Adds a problem, the first time: `missing` things are left out because of `option`."""
        if not self._is_known:
            self._is_known = True
            problems.append(f"{missing} are not reported: raise {option}, or select fewer")


class Reader(ABC):
    """Reads the metrics of one scraper. Those that are not enabled are left out later, unless they are expensive."""

    def __init__(self, enabled: frozenset[str]) -> None:
        self.enabled = enabled
        """The names of the metrics to send."""

    @abstractmethod
    def read(self, problems: list[str]) -> Iterator[Reading]:
        """The current values. Adds a sentence to `problems` for each part that it could not read.

        Raises OSError if it can read nothing.
        """


class ManySubjectsReader(ABC):
    """Reads the metrics of many subjects, such as processes."""

    def __init__(self, enabled: frozenset[str]) -> None:
        self.enabled = enabled
        """The names of the metrics to send."""

    @abstractmethod
    def read_all(self, problems: list[str]) -> Iterator[tuple[Subject, list[Reading]]]:
        """The current values of each subject. Otherwise as `Reader.read`."""
