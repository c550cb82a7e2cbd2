"""The Python stacks of a training process, and how they travel: as the bodies of log records.

The ebpf receiver writes a record with the event `zernel.process.stacks` for each training process and report, and one
with the event `zernel.process.threads` for a training process that has made no mark for a while. Both have the resource
of the process, and `phases` reads them. A stack names files, functions and lines; it has no arguments and no locals.
"""

from dataclasses import dataclass, field
from typing import Annotated, Final

from pydantic import Field, FiniteFloat

from otel_zernel_libraries.training.ledger import Activity
from otel_zernel_libraries.training.record_bodies import RecordBody

MOST_STACKS: Final = 512
MOST_LINES: Final = 4_096
MOST_FRAMES: Final = 64
MOST_THREADS: Final = 128
MOST_COLLECTIVES: Final = 64
OWN_LOCK: Final = "the lock that it holds itself"
"""`ThreadNow.detail` of a thread that waits for a lock that only it could give back: it waits for ever."""
HOLDS_GIL: Final = "and holds the GIL"
"""The end of `ThreadNow.detail` of a thread that waits in a call from which it should have given back Python's lock."""
STANDARD_INPUT: Final = "its standard input"
"""A part of `ThreadNow.detail` of a thread that waits for a terminal, or for the program that has started it."""
GLOO: Final = "gloo of"
"""The begin of the names of communicators of gloo: their collectives are open until they have finished on a rank."""
LONGEST_TEXT: Final = 1_024
Text = Annotated[str, Field(max_length=LONGEST_TEXT)]
Count = Annotated[int, Field(ge=0, lt=2**63)]
Seconds = Annotated[FiniteFloat, Field(ge=0)]
"""All times are seconds."""


@dataclass(frozen=True, slots=True)
class CodeLine:
    """A line of Python that a thread was in."""

    file: Text
    """As Python knows it: `/home/me/train.py`, `<ipython-input-3>`."""
    function: Text
    """From Python 3.11 on with its class: `Trainer.fit`."""
    line: Count
    """From 1; 0 if it is not known."""
    library_path: Text | None = field(default=None, compare=False)
    """The path of the file within the folder of its library: `torch/nn/modules/linear.py`. Empty for files of the user,
    None if only the names of the folders say it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StackTime:
    """The time of a thread in one stack, with one activity, after one mark."""

    thread: Count = 0
    """Its id; 0 for all threads of a process that make no marks."""
    worker: Count = 0
    """The pid of the DataLoader worker; 0 for the training process itself."""
    mark: Text = ""
    """The kind of the thread's latest mark: a value of `zernel.interval`; empty without one."""
    is_inside: bool = False
    """The latest mark is a begin, not an end."""
    activity: Activity
    seconds: Seconds
    """On the CPU: samples by their interval. Else the length of the waits."""
    lines: Annotated[tuple[Count, ...], Field(max_length=MOST_FRAMES)]
    """The innermost first: indexes of `ProcessStacks.lines`."""
    is_cut: bool = False
    """There are more frames."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessStacks:
    """The body of a record `zernel.process.stacks`: where a process has spent its time since the record before."""

    lines: Annotated[tuple[CodeLine, ...], Field(max_length=MOST_LINES)] = ()
    stacks: Annotated[tuple[StackTime, ...], Field(max_length=MOST_STACKS)] = ()
    """The longest, if there are more."""
    left_out: Seconds = 0.0
    """The time of the others, and of stacks that could not be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadNow:
    """What a thread does at the time of the record."""

    thread: Count
    name: Text = ""
    is_main: bool = False
    activity: Activity
    detail: Text = ""
    """The object of its wait: `reads /data/train.bin (nfs of storage:/data)`, `the lock that it holds itself`,
    `the GIL, which thread 4711 holds`. Empty if it is not known."""
    seconds: Seconds = 0.0
    """Since when; 0 if it is not known."""
    lines: Annotated[tuple[CodeLine, ...], Field(max_length=MOST_FRAMES)] = ()
    """The innermost first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenCollective:
    """A collective that has begun on this rank and has not ended."""

    operation: Text
    """`all_reduce`"""
    communicator: Text = ""
    """Its name on all ranks; empty if it has none."""
    sequence: Count = 0
    """Its number in its communicator; 0 if it is not known."""
    bytes: Count = 0
    """0 if they are not known."""
    thread: Count = 0
    seconds: Seconds
    """Since its begin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildNow:
    """A child of a training process, for example a DataLoader worker."""

    pid: Count
    name: Text = ""
    is_worker: bool = False
    is_stopped: bool = False
    is_dead: bool = False
    """It has ended, and its parent has not asked for its exit status."""
    ending: Text = ""
    """How it ended: `killed by SIGKILL`; empty if that is not known."""
    threads: Annotated[tuple[ThreadNow, ...], Field(max_length=MOST_THREADS)] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessThreads:
    """The body of a record `zernel.process.threads`: what a process that makes no marks does now."""

    silent: Seconds
    """Since its latest mark, or since the receiver began to watch it."""
    has_marks: bool = False
    """The receiver has seen a mark of it."""
    is_stopped: bool = False
    """By a signal, or by a debugger."""
    is_traced: bool = False
    """A debugger is attached."""
    has_lost_ranks: bool = False
    """All ranks of its job run on its host, by its environment, and its launcher has fewer processes that live."""
    threads: Annotated[tuple[ThreadNow, ...], Field(max_length=MOST_THREADS)] = ()
    collectives: Annotated[tuple[OpenCollective, ...], Field(max_length=MOST_COLLECTIVES)] = ()
    children: Annotated[tuple[ChildNow, ...], Field(max_length=MOST_THREADS)] = ()


STACKS: Final = RecordBody(ProcessStacks, is_json=True)
THREADS: Final = RecordBody(ProcessThreads)
