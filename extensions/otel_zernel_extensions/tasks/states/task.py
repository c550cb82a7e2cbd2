"""A task and its state, as they are stored."""

from dataclasses import dataclass
from typing import Final, Literal, get_args

from otel_zernel_extensions.tasks.engines.engine import TaskSpec

Status = Literal["queued", "starting", "running", "succeeded", "failed", "cancelled", "lost"]
STATUSES: Final[tuple[Status, ...]] = get_args(Status)
FINAL: Final = frozenset[Status]({"succeeded", "failed", "cancelled", "lost"})


@dataclass(frozen=True, slots=True)
class StoredTask:
    """A task. Times are s since 1970."""

    spec: TaskSpec
    created: float
    status: Status = "queued"
    cancel_requested: bool = False
    handle: str | None = None
    """The engine's name of the task, from its first confirmed submit on."""
    exit_code: int | None = None
    signal: int | None = None
    reason: str = ""
    started: float | None = None
    ended: float | None = None
    recorded: float | None = None
    """When the end was stored, by the collector's clock: `ended` is by the engine's, and may be long ago."""
    version: int = 0
    """Grows with each stored change."""

    @property
    def is_final(self) -> bool:
        """Whether the state never changes any more."""
        return self.status in FINAL
