"""A job that hangs, and how it travels: as the body of a log record.

`phases` writes a record with the event `zernel.job.hung` and the resource of the job, or of the process that trains
alone, when a job hangs, and in each report until it goes on. If somebody has stopped all ranks, the event is
`zernel.job.stopped`.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Final, NamedTuple

from pydantic import Field, FiniteFloat

from otel_zernel_libraries.training.ledger import Activity
from otel_zernel_libraries.training.record_bodies import RecordBody
from otel_zernel_libraries.training.stacks import Count, Text

MOST_RANKS: Final = 1_024


class HungRole(StrEnum):
    """The part of a rank in a hang."""

    WAITING = "waiting"
    """It waits for others."""
    MISSING = "missing"
    """The others wait for it."""
    MISMATCHED = "mismatched"
    """It waits in another operation than most ranks, or with another size."""
    DEAD = "dead"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class HungCollective:
    """The collective that ranks wait in."""

    operation: Text
    communicator: Text = ""
    sequence: Count = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class HungRank:
    """What a rank does in a hang."""

    rank: int | None = None
    """None for a process that trains alone."""
    host: Text = ""
    pid: Count
    """0 if no process of the rank is known."""
    role: HungRole
    activity: Activity | None = None
    """None for a rank that is dead."""
    detail: Text = ""
    """The object of its wait, or how it ended: `killed by SIGKILL`."""
    code: Annotated[tuple[Text, ...], Field(max_length=64)] = ()
    """`train.py:12 function`, the user's deepest line first. Of a dead rank, the last line that was seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobHang:
    """The body of the record."""

    since: Annotated[FiniteFloat, Field(ge=0, lt=2**34)]
    """s since 1970"""
    is_at_least: bool = False
    """The begin of the hang was not seen: it may have hung before `since`, when the collector began to watch it."""
    collective: HungCollective | None = None
    """None if no rank waits in a collective."""
    ranks: Annotated[tuple[HungRank, ...], Field(min_length=1, max_length=MOST_RANKS)]
    """The guilty ones first."""

    @property
    def is_stop(self) -> bool:
        """Whether somebody has stopped all ranks that run: then the job does not hang, and can be continued."""
        return all(rank.role is HungRole.STOPPED for rank in self.ranks)


class SeenHang(NamedTuple):
    """A hang, and the time of its newest record (s since 1970)."""

    hang: JobHang
    time: float


HANG: Final = RecordBody(JobHang)
