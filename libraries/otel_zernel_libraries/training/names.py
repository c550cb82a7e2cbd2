"""The values of attributes that `phases` and the receivers of GPUs share (docs/development/spans.md)."""

from collections.abc import Collection, Mapping
from typing import Final

from otel_zernel.otlp.points import AttributeValue
from otel_zernel_libraries.training.ledger import Phase

PHASES: Final = tuple(phase.value for phase in Phase)
"""The values of `zernel.phase`, in the order of a step."""
TRAINED: Final = ("training", "accumulation")
"""The values of `zernel.step.kind` for steps with a backward pass."""
HARMLESS_THROTTLING: Final = frozenset({"idle", "application_clocks", "display_clocks", "sync_boost"})
"""Reasons for lower clocks that are no fault of the machine."""


def best_source(sources: Collection[str], *, has_steps: bool) -> str:
    """The best source of a process's phases: `scopes` with steps, else `threads` or `signals`; empty if none is known.

    `sources` are those in which a known phase has time.
    """
    if has_steps:
        return "scopes"
    return next((source for source in ("threads", "signals") if source in sources), "")


def launcher_of(attributes: Mapping[str, AttributeValue]) -> str:
    """`HOST/PID` of the parent of a process, which names a job without a name; empty if it is not known."""
    parent = attributes.get("process.parent_pid")
    return f"{attributes.get('host.name', '')}/{parent}" if parent else ""
