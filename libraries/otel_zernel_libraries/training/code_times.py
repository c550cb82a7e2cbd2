"""Where the threads of a process spend their time, by the position of the training thread and by stack.

On request, `phases` writes a record with the event `zernel.process.code` and the resource of the process.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Final, NamedTuple

from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from pydantic import Field

from otel_zernel_libraries.training.code_paths import Place, folder_of, of_worker, place_of, waits_for_python
from otel_zernel_libraries.training.ledger import Activity, Position
from otel_zernel_libraries.training.record_bodies import RecordBody
from otel_zernel_libraries.training.stacks import MOST_FRAMES, MOST_LINES, MOST_STACKS, CodeLine, Count, Seconds

FOR_OTHERS: Final = frozenset({Activity.LOCK, Activity.PIPE})
"""Waits for another thread, or for another process."""
_LOOP: Final = frozenset({Position.FORWARD, Position.BACKWARD, Position.OPTIMIZER})
PlaceKey = tuple[str, str, int]
"""The file, the function and the number of a line; 0 for all lines of the function."""


class PlacedStack(NamedTuple):
    """The time of one stack with one activity."""

    seconds: float
    activity: Activity
    lines: tuple[CodeLine, ...]
    """The innermost first."""
    position: Position = Position.UNKNOWN
    """Of a stack of the training thread; `load` for one of a worker."""
    worker: int = 0
    """The pid of the DataLoader worker."""
    is_other: bool = False
    """It is not the training thread's."""


@dataclass(frozen=True)
class CodeTimes:
    """Where the threads of a process were in the time of a window."""

    seconds: float = 0.0
    """The time of the training thread that this covers."""
    stacks: Sequence[PlacedStack] = ()

    def __bool__(self) -> bool:
        return self.seconds > 0 and bool(self.stacks)

    @cached_property
    def folder(self) -> str:
        """The folder of the program."""
        return folder_of(stack.lines for stack in self.stacks)

    @cached_property
    def own(self) -> Mapping[tuple[Position, Activity], Sequence[tuple[PlacedStack, Place]]]:
        """The stacks of the training thread that have a place, by position and activity."""
        stacks: defaultdict[tuple[Position, Activity], list[tuple[PlacedStack, Place]]] = defaultdict(list)
        for stack in self.stacks:
            if not stack.is_other and (place := place_of(stack.lines)):
                stacks[stack.position, stack.activity].append((stack, place))
        return stacks

    @cached_property
    def helpers(self) -> Sequence[tuple[PlacedStack, Place]]:
        """The stacks of workers that make batches, and of other threads in the user's code. Those that wait for
        another thread do not count."""
        busy = []
        for stack in self.stacks:
            if not stack.is_other or (stack.activity in FOR_OTHERS and waits_for_python(stack.lines)):
                continue
            inner, makes_batch = of_worker(stack.lines)
            place = place_of(inner)
            if place and (makes_batch if stack.worker else place.is_user):
                busy.append((stack, place))
        return busy

    @cached_property
    def loops(self) -> frozenset[tuple[str, str]]:
        """The functions that have lines in several parts of a step: each of their lines is a place of its own."""
        positions: defaultdict[tuple[str, str], set[Position]] = defaultdict(set)
        for (position, _), stacks in self.own.items():
            for _, place in stacks if position in _LOOP else ():
                positions[place.line.file, place.line.function].add(position)
        return frozenset(key for key, some in positions.items() if len(some) > 1)

    def key(self, place: Place) -> PlaceKey:
        """Equal for stacks of one place. All lines of a function are one, unless it is the loop."""
        file, function, line = place.line.file, place.line.function, place.line.line
        return (file, function, line if (file, function) in self.loops else 0)

    def to_body(self) -> AnyValue:
        """The body of a record, with the longest stacks."""
        table: dict[CodeLine, int] = {}
        stacks = []
        for stack in sorted(self.stacks, key=lambda stack: -stack.seconds)[:MOST_STACKS]:
            if len(table) + len(stack.lines) <= MOST_LINES:
                lines = tuple(table.setdefault(line, len(table)) for line in stack.lines[:MOST_FRAMES])
                stacks.append(
                    _Stack(stack.seconds, stack.activity, lines, stack.position, stack.worker, stack.is_other)
                )
        return _BODY.write(_Body(self.seconds, tuple(table), tuple(stacks)))

    @classmethod
    def from_body(cls, body: AnyValue) -> "CodeTimes":
        """Reads the body of a record. Raises `MalformedSpan`."""
        read = _BODY.read(body)
        stacks = [
            PlacedStack(
                stack.seconds,
                stack.activity,
                tuple(read.lines[at] for at in stack.lines if at < len(read.lines)),
                stack.position,
                stack.worker,
                stack.is_other,
            )
            for stack in read.stacks
        ]
        return cls(read.seconds, stacks)


@dataclass(frozen=True, slots=True)
class _Stack:
    """A stack in a record: its lines are numbers in the table of lines."""

    seconds: Seconds
    activity: Activity
    lines: Annotated[tuple[Count, ...], Field(max_length=MOST_FRAMES)]
    position: Position = Position.UNKNOWN
    worker: Count = 0
    is_other: bool = False


@dataclass(frozen=True, slots=True)
class _Body:
    seconds: Seconds
    lines: Annotated[tuple[CodeLine, ...], Field(max_length=MOST_LINES)] = ()
    stacks: Annotated[tuple[_Stack, ...], Field(max_length=MOST_STACKS)] = ()


_BODY: Final = RecordBody(_Body)
