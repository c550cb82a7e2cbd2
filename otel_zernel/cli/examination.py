"""`otel-zernel doctor`: reports which prerequisites of the components this machine meets."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from otel_zernel.component import ComponentConfig, Finding, Kind
from otel_zernel.config.schema import Settings
from otel_zernel.errors import ConfigError
from otel_zernel.registry import KINDS, Registry
from otel_zernel.runtime.garbage import collection_deferred
from otel_zernel.text import one_line

Subject = tuple[Kind, str, str, ComponentConfig | None]
"""A component to examine: its kind, id, type and configuration. None stands for the default configuration."""

_MARKS = {True: "ok", False: "!!", None: "  "}


def installed(registry: Registry) -> list[Subject]:
    """Every installed type once, without its aliases."""
    return [(kind, type_, type_, None) for kind in KINDS for type_ in registry.aliases(kind)]


def configured(settings: Settings) -> list[Subject]:
    """The components of a configuration."""
    return [
        (component.kind, id_, component.type, component.config)
        for kind in KINDS
        for id_, component in getattr(settings, kind).items()
    ]


@dataclass(frozen=True, slots=True)
class DoctorReport:
    """The findings of one component."""

    path: str
    """The component's kind and id (`receivers::csv/a`), or its kind and type."""
    findings: tuple[Finding, ...]

    @property
    def is_complete(self) -> bool:
        """Whether no prerequisite is missing."""
        return all(finding.ok is not False for finding in self.findings)

    def text(self, *, verbose: bool = False) -> str:
        """A heading, and an aligned line for each finding. With `verbose`, the details of each finding follow it."""
        width = max((len(finding.topic) for finding in self.findings), default=0)
        lines = (line for finding in self.findings for line in _lines(finding, width, verbose=verbose))
        return "\n".join((self.path, *map(_printable, lines)))


def examine(registry: Registry, subjects: Iterable[Subject]) -> Iterator[DoctorReport]:
    """Examines the components. This may block. All begin before the first one ends: one may work in a thread."""
    findings = [(f"{kind}::{id_}", _findings(registry, kind, type_, config)) for kind, id_, type_, config in subjects]
    with collection_deferred():  # modules and classes are no garbage
        begun = [(path, list(islice(of_component, 1)), of_component) for path, of_component in findings]
    for path, first, rest in begun:
        yield DoctorReport(path, (*first, *rest))


def _findings(registry: Registry, kind: Kind, type_: str, config: ComponentConfig | None) -> Iterator[Finding]:
    try:
        cls = registry.load(kind, type_)
        if message := cls.missing():
            yield Finding("packages", message, ok=False)
        yield from cls.examine(config)
    except ConfigError as error:
        yield Finding("plugin", one_line(error), ok=False)
    except Exception as error:  # noqa: BLE001  # a third party's component may raise anything
        yield Finding("doctor", _bug_in_examination(error), ok=False)


def _bug_in_examination(error: Exception) -> str:
    return (
        f"the examination failed: {type(error).__name__}: {one_line(error)}; report this bug to the component's author"
    )


def _lines(finding: Finding, width: int, *, verbose: bool) -> Iterator[str]:
    yield f"  {_MARKS[finding.ok]}  {finding.topic:<{width}}  {finding.text}"
    if verbose:
        yield from (f"        {line}" for line in finding.details)


def _printable(text: str) -> str:
    """The text with control characters escaped. Names of processes and files may have terminal escape sequences."""
    return text if text.isprintable() else ascii(text)[1:-1]
