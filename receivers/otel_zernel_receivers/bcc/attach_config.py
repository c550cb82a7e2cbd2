"""The entries of `attach`: which function of a program runs where."""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from otel_zernel.types import Section

Name = Annotated[str, Field(min_length=1)]
Function = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
Pid = Annotated[int, Field(ge=1)] | None
PerfEvent = Literal[
    "cpu_clock",
    "task_clock",
    "page_faults",
    "minor_faults",
    "major_faults",
    "context_switches",
    "cpu_migrations",
    "cpu_cycles",
    "instructions",
    "cache_references",
    "cache_misses",
    "branch_instructions",
    "branch_misses",
]


class Attachment(Section):
    """The part that all kinds share."""

    kind: str
    function: Function
    """The function of the program."""

    @property
    def file(self) -> str | None:
        """The file to probe, if it is a path."""
        path: str = getattr(self, "path", "")
        return path if path.startswith("/") else None


class UprobeConfig(Attachment):
    """The entry of a function in a program or library, in all processes."""

    kind: Literal["uprobe"]
    path: Name
    """The file, or the name of a library without `lib`: `c`."""
    symbol: Name
    """The function to probe."""
    offset: Annotated[int, Field(ge=0)] = 0
    """Bytes behind the function's first instruction."""
    pid: Pid = None
    """One process. None means all, also later ones."""


class UretprobeConfig(Attachment):
    """The return of a function in a program or library."""

    kind: Literal["uretprobe"]
    path: Name
    symbol: Name
    pid: Pid = None


class UsdtConfig(Attachment):
    """A static probe of a program or library, in all processes."""

    kind: Literal["usdt"]
    path: Annotated[str, Field(pattern="^/")]
    """The absolute path of the file."""
    probe: Annotated[str, Field(pattern="^[^:]+:[^:]+$")]
    """Provider and name: `python:gc__start`."""
    pid: Pid = None


class KprobeConfig(Attachment):
    """The entry or the return of a function of the kernel."""

    kind: Literal["kprobe", "kretprobe"]
    symbol: Name


class TracepointConfig(Attachment):
    """A tracepoint of the kernel."""

    kind: Literal["tracepoint"]
    event: Annotated[str, Field(pattern="^[^:]+:[^:]+$")]
    """Category and name: `block:block_rq_issue`."""


class RawTracepointConfig(Attachment):
    """A tracepoint of the kernel, with its raw arguments. It needs no tracefs."""

    kind: Literal["raw_tracepoint"]
    event: Name
    """The name alone: `sched_switch`."""


class PerfEventConfig(Attachment):
    """A counter of perf: the function runs once in `period` events, or `frequency` times a second."""

    kind: Literal["perf_event"]
    event: PerfEvent
    period: Annotated[int, Field(ge=1)] | None = None
    frequency: Annotated[int, Field(ge=1, le=100_000)] | None = None
    """Hz, on each CPU."""
    pid: Pid = None

    @model_validator(mode="after")
    def _one_rate(self) -> Self:
        if (self.period is None) == (self.frequency is None):
            raise ValueError("give either `period` (events) or `frequency` (Hz)")
        return self


AnyAttachment = Annotated[
    UprobeConfig
    | UretprobeConfig
    | UsdtConfig
    | KprobeConfig
    | TracepointConfig
    | RawTracepointConfig
    | PerfEventConfig,
    Field(discriminator="kind"),
]


def as_request(entry: Attachment) -> dict[str, Any]:
    """The entry as the child process takes it."""
    return {"offset": 0, "pid": None, **entry.model_dump()}
