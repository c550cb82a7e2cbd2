"""Who had a CPU for which a thread of a job waited, in the points of `zernel.process.cpu.taken.time`."""

from enum import StrEnum
from typing import Final, NamedTuple


class TakerKind(StrEnum):
    """`zernel.cpu.taker`."""

    SELF = "self"
    """Another thread of the process."""
    CHILD = "child"
    """A process that it has started, such as a worker of its DataLoader."""
    RANK = "rank"
    """Another rank of its job, or a process that such a rank has started."""
    COLLECTOR = "collector"
    """The collector that measures it."""
    OTHER = "other"


OF_JOB: Final = frozenset({TakerKind.SELF, TakerKind.CHILD, TakerKind.RANK})
"""The job takes the CPU from itself."""


class CpuTaker(NamedTuple):
    """A taker."""

    kind: TakerKind
    name: str = ""
    """The name of its program; empty for other threads of the process, and for all programs that are not named."""
