"""`otel-zernel doctor`: what this machine has of what the components need."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from otel_zernel.component import ComponentConfig, Finding, Kind
from otel_zernel.config.schema import Settings
from otel_zernel.errors import ConfigError
from otel_zernel.registry import KINDS, Registry
from otel_zernel.text import one_line

Patient = tuple[Kind, str, str, ComponentConfig | None]
"""Kind, id, type and, if there is one, configuration."""

_MARKS = {True: "ok", False: "!!", None: "  "}


def installed(registry: Registry) -> list[Patient]:
    """Every type there is, by its proper name."""
    return [(kind, type_, type_, None) for kind in KINDS for type_ in registry.aliases(kind)]


def configured(settings: Settings) -> list[Patient]:
    """The components of a configuration."""
    return [(one.kind, id_, one.type, one.config) for kind in KINDS for id_, one in getattr(settings, kind).items()]


@dataclass(frozen=True, slots=True)
class Report:
    """What one component has found."""

    path: str
    """The kind and the id, or the type: `receivers::csv`."""
    findings: tuple[Finding, ...]

    @property
    def well(self) -> bool:
        """Whether the component has what it needs."""
        return all(finding.ok is not False for finding in self.findings)

    def text(self, *, verbose: bool = False) -> str:
        """A heading, and aligned below it a line for each finding; if verbose, with its details."""
        if not self.findings:
            return f"{self.path}: nothing is missing"
        width = max(len(finding.topic) for finding in self.findings)
        lines = (line for one in self.findings for line in _lines(one, width, verbose=verbose))
        return "\n".join((self.path, *map(_printable, lines)))


def examine(registry: Registry, patients: Iterable[Patient]) -> Iterator[Report]:
    """Has the components look at this machine, one after the other."""
    for kind, id_, type_, config in patients:
        yield Report(f"{kind}::{id_}", tuple(_findings(registry, kind, type_, config)))


def _findings(registry: Registry, kind: Kind, type_: str, config: ComponentConfig | None) -> Iterator[Finding]:
    try:
        cls = registry.load(kind, type_)
        if sentence := cls.missing():
            yield Finding("packages", sentence, ok=False)
        yield from cls.examine(config)
    except ConfigError as error:
        yield Finding("plugin", one_line(error), ok=False)
    except Exception as error:  # noqa: BLE001  # a stranger's component may break its promise
        yield Finding("doctor", f"the examination failed: {type(error).__name__}: {one_line(error)}", ok=False)


def _lines(finding: Finding, width: int, *, verbose: bool) -> Iterator[str]:
    yield f"  {_MARKS[finding.ok]}  {finding.topic:<{width}}  {finding.text}"
    if verbose:
        yield from (f"        {line}" for line in finding.details)


def _printable(text: str) -> str:
    """The names of processes and files may hold anything, and a terminal would obey it."""
    return text if text.isprintable() else ascii(text)[1:-1]
