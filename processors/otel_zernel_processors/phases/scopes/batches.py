"""Which part of a gap between two marks is the load of a batch, in a loop without a DataLoader.

Only facts decide. Data moves in reads, in page faults on mapped files, and in copies to the device. A log moves it in
the other direction, so a thread that loads reads more than it writes. Files of /proc have no data. A
wait for a lock is a wait for a thread that prepares batches, if the training thread has no time to make one itself, and
does not hand something to that thread. A read from a pipe is a wait for a process that prepares them, unless the thread
has just started one: then it is a command. Sleeps, waits for a child, and writes move no data: they belong to the load
only if their Python code stands before the backward pass in the loop. So does time on a CPU, by samples of its code.
docs/phases.md has the limits.
"""

from collections.abc import Sequence
from itertools import pairwise
from operator import sub
from typing import Final, NamedTuple

from otel_zernel_libraries.training.interval_spans import Evidence
from otel_zernel_libraries.training.ledger import STATES, Activity, Snapshot, ThreadClock
from otel_zernel_libraries.training.ledger.snapshots import KNOWS_FILE_FAULTS, WAITS

_BATCH: Final = 4096
"""Bytes that a thread reads, or copies to a device, in a gap if it loads data. Fewer are, for example, a header or a
learning rate."""
_ANSWER: Final = 1024
"""The same if it receives them from a socket. Fewer are an answer to a request."""
_ASKED: Final = 8
"""It then receives so many times as much as it writes. Opening an encrypted connection sends about a fifth of what it
receives."""
_CERTIFICATES: Final = 8192
"""Or it receives so many bytes more than it writes, whatever it is asked for. Opening an encrypted connection receives
some certificates, of 1 to 2 KB each."""
_FILE_FAULTS, _FILE_FAULT_NS = 2, 2_000_000
"""Page faults on files in a gap if a thread loads data from mapped memory, and the time for each."""
_FAULTS, _FAULT_NS = 8, 250_000
"""The same if only the number of all page faults is known: new memory causes faults, too."""
_WAITING: Final = 50
"""A thread makes no batch itself if it waits for others so many times as long as it computes. Measured for a thread
that takes batches from a `queue.Queue` on a busy machine: in 9 of 10 waits of 5 ms at least 67 times, of 20 ms 709."""
_SHORTEST_NS: Final = 50_000
"""Shorter waits show nothing."""
_COUNTS: Final = 2**32
_STATE: Final = {activity: at for at, activity in enumerate(STATES) if activity}
_CPU_WAIT, _LOCK, _PIPE, _CHILD, _SOCKET = (
    _STATE[activity] for activity in (Activity.CPU_WAIT, Activity.LOCK, Activity.PIPE, Activity.CHILD, Activity.SOCKET)
)
_ALL: Final = frozenset(range(len(STATES)))
_COMPUTING: Final = (0, *(_STATE[activity] for activity in (Activity.GPU_WAIT, Activity.LAUNCH_BLOCKED)))
_IDLE: Final = frozenset({_STATE[Activity.TIMER], _CHILD})
_TRANSFERS: Final = frozenset({_STATE[Activity.FILE], _STATE[Activity.SOCKET], _PIPE})
_BLOCKED: Final = (*sorted(_IDLE | _TRANSFERS), _LOCK)
_WITH_CODE: Final = tuple(_STATE[activity] for activity in WAITS)
"""The waits whose Python code is known: those in system calls."""
_OWN: Final = tuple(_STATE[activity] for activity in (Activity.CPU_WAIT, Activity.FAULT, Activity.SWAP))
"""The waits for which samples on a CPU stand."""
_CLEAR: Final = 0.8
"""If such a part of the time on a CPU belongs to one of two, these waits do."""


class Load(NamedTuple):
    """The load of a batch."""

    start: int
    """ns"""
    activity: Activity = Activity.UNKNOWN
    """What an old recording shows of it."""


def load_before(
    end: int,
    start: int,
    clock: ThreadClock,
    evidence: Evidence,
    bridge_ns: int,
    *,
    few: bool,
    is_fed: bool,
    by_code: bool = False,
    own_part: float | None = None,
) -> Load | None:
    """The load at the end of a gap (ns); None if the thread loads nothing. What comes before it is other code.

    `evidence` is that of a recording without snapshots. With `few`, two page faults on files are enough. `is_fed`:
    whether another thread of the process loads data. A thread that computes for less than `bridge_ns`, or for a small
    part of its wait, makes no batch. `by_code`: whether waits in code before the backward pass belong to the load.
    `own_part`: the part of the thread's own time in such code, 0 to 1, if it is known.
    """
    if not clock.knows(start, end):
        return _by_evidence(evidence, start, end, bridge_ns, few=few)
    little = max(bridge_ns, _time_in((_LOCK,), start, end, clock) // _WAITING)
    has_feeder = is_fed or own_work(start, end, clock) < little
    times = clock.times_between(start, end)
    for since, until in pairwise([start, *(times if own_part is None else ()), end]):
        first, last = clock.at(since), clock.at(until)
        if not (first and last):
            continue
        part = _part_of_load(first, last, few=few, has_feeder=has_feeder)
        if by_code:
            part = _with_code(first, last, part)
        if own_part is not None:
            part = _with_own_time(first, last, part, own_part, bridge_ns)
        if part is None:
            continue
        spent = tuple(map(sub, last.times, part))
        lasted = min(sum(spent) - sum(first.times), until - since)
        if since + lasted - start < bridge_ns:
            return Load(start)
        if 0 < lasted < until - since and (own_part is None or not times):
            clock.insert(since + lasted, first._replace(time=first.time + lasted, times=spent))
        return Load(since + lasted)
    return None


def prepares_batch(start: int, end: int, clock: ThreadClock) -> bool:
    """Whether a thread with a loader works on a batch between the load and the pass: it moves data, or computes for
    longer than it waits."""
    first, last = clock.at(start), clock.at(end)
    if not (first and last):
        return False
    is_moved = _part_of_load(first, last, few=False, has_feeder=False, takes_pipes=False) is not None
    return is_moved or _time_in((0,), start, end, clock) > _time_in(_BLOCKED, start, end, clock)


def is_blocked(start: int, end: int, clock: ThreadClock) -> bool:
    """Whether the thread waits in this time for something other than a CPU."""
    return _time_in(_BLOCKED, start, end, clock) >= _SHORTEST_NS


def own_time(start: int, end: int, clock: ThreadClock) -> int:
    """The time (ns) of a gap without that in which the thread could run, but had no CPU."""
    return end - start - _time_in((_CPU_WAIT,), start, end, clock)


def own_work(start: int, end: int, clock: ThreadClock) -> int:
    """The time (ns) of a gap in which the thread computes, or waits for what it has launched; all of it if the clock
    does not know."""
    return _time_in(_COMPUTING, start, end, clock) if clock.knows(start, end) else end - start


def waits_for_child(start: int, end: int, clock: ThreadClock) -> bool:
    """Whether the thread waits for the other end of a pipe: a vector of environments in processes of their own."""
    return _time_in((_PIPE,), start, end, clock) >= _SHORTEST_NS


def leaves_pass(start: int, end: int, lasted: int, clock: ThreadClock) -> bool:
    """Whether a pause after a pass of `lasted` ns is no part of it: the thread blocks, or runs Python for longer than
    the pass."""
    return is_blocked(start, end, clock) or _time_in((0,), start, end, clock) > lasted


def _time_in(states: tuple[int, ...], start: int, end: int, clock: ThreadClock) -> int:
    first, last = clock.at(start), clock.at(end)
    return sum(last.times[at] - first.times[at] for at in states) if first and last else 0


def _part_of_load(
    first: Snapshot, last: Snapshot, *, few: bool, has_feeder: bool, takes_pipes: bool = True
) -> list[int] | None:
    """The ns of a gap in each state that belong to its load; None without a load."""
    spent = list(map(sub, last.times, first.times))
    reading = _without(spent, last.writing - first.writing)
    reading = _without(reading, last.after_backward - first.after_backward)
    reading[_LOCK] -= min(max(last.giving - first.giving, 0), reading[_LOCK])
    if _reads(first, last, reading):
        states = _ALL - _IDLE
    elif last.copied - first.copied >= _BATCH or _maps_files(
        _faults(first, last), 0 if few else last.time - first.time
    ):
        states = _ALL - _IDLE - _TRANSFERS
    elif has_feeder and reading[_LOCK] >= _SHORTEST_NS:
        states = frozenset({_LOCK, _CPU_WAIT})
    elif takes_pipes and reading[_PIPE] >= _SHORTEST_NS and last.read > first.read and first.forks == last.forks:
        states = frozenset({_PIPE, _CPU_WAIT})
    else:
        return None
    return [lasted if state in states else 0 for state, lasted in enumerate(reading)]


def _with_code(first: Snapshot, last: Snapshot, part: list[int] | None) -> list[int] | None:
    """The ns of a gap in each state that belong to its load, with the waits in code before the backward pass. Time on a
    CPU, or in a wait for one, is divided as these waits are, if the thread waits for longer than it computes."""
    spent = list(map(sub, last.times, first.times))
    of_code, unsettled = [0] * len(spent), 0
    for state, before, after in zip(_WITH_CODE, first.before_backward, last.before_backward, strict=True):
        counted = (after - before) % _COUNTS * 1000
        of_code[state] = min(counted, spent[state])
        unsettled = counted - of_code[state]  # only the last state has such waits
    for state in _WITH_CODE:
        rest = min(unsettled, spent[state] - of_code[state])
        of_code[state] += rest
        unsettled -= rest
    waits, loads = sum(spent[state] for state in _WITH_CODE), sum(of_code)
    if loads < _SHORTEST_NS:
        return part
    for state in (0, _CPU_WAIT) if waits > spent[0] else ():
        of_code[state] = spent[state] * loads // waits
    return list(map(max, of_code, part)) if part else of_code


def _with_own_time(
    first: Snapshot, last: Snapshot, part: list[int] | None, own_part: float, shortest_ns: int
) -> list[int] | None:
    """The ns of a gap in each state that belong to its load, by the part of the thread's own time that does. Short
    waits for threads, as of OpenMP, have no frames: they go with it. None for a load shorter than `shortest_ns`."""
    spent = list(map(sub, last.times, first.times))
    of_code = list(part) if part else [0] * len(spent)
    of_waits = own_part if abs(own_part - 0.5) < _CLEAR - 0.5 else round(own_part)
    of_code[0] = round(spent[0] * own_part)
    for state in _OWN:
        of_code[state] = round(spent[state] * of_waits)
    if not of_code[_LOCK]:
        of_code[_LOCK] = round(max(spent[_LOCK] - last.giving + first.giving, 0) * of_waits)
    return of_code if sum(of_code) >= shortest_ns else None


def _reads(first: Snapshot, last: Snapshot, reading: Sequence[int]) -> bool:
    """Whether the thread reads a batch. A request is sent for an answer. A log that changes a page of a file reads the
    page, and writes it. The output of a command that the thread has started is none."""
    read, written = last.read - first.read, last.written - first.written
    if last.forks != first.forks and reading[_PIPE] >= _SHORTEST_NS:
        return False
    if reading[_SOCKET] < _SHORTEST_NS:
        return read >= _BATCH + written
    return read >= min(max(_ANSWER, _ASKED * written), _CERTIFICATES + written)


def _without(spent: list[int], transfers: int) -> list[int]:
    """The time in each state without so many ns in waits for files, sockets and pipes: those that write, or that stand
    after the backward pass. A socket seldom holds up its sender."""
    left, transfers = list(spent), max(transfers, 0)
    for state in sorted(_TRANSFERS, key=lambda state: (state == _SOCKET, -left[state])):
        part = min(left[state], transfers)
        left[state] -= part
        transfers -= part
    return left


def _faults(first: Snapshot, last: Snapshot) -> Evidence:
    """The page faults between two snapshots: on files if the kernel counts them, else all."""
    if first.known & last.known & KNOWS_FILE_FAULTS:
        return Evidence(file_faults=(last.file_faults - first.file_faults) % _COUNTS)
    every = last.minor_faults + last.major_faults - first.minor_faults - first.major_faults
    return Evidence(faults=every % _COUNTS)


def _maps_files(evidence: Evidence, lasted: int) -> bool:
    """Whether page faults show a load from mapped memory in a period of `lasted` ns."""
    on_files = evidence.file_faults >= max(_FILE_FAULTS, lasted / _FILE_FAULT_NS)
    return on_files or evidence.faults >= max(_FAULTS, lasted / _FAULT_NS)


def _by_evidence(evidence: Evidence, start: int, end: int, bridge_ns: int, *, few: bool) -> Load | None:
    lasted = 0 if few else end - start
    if evidence.read >= _BATCH:
        return Load(start, Activity.FILE)
    if evidence.copies:
        return Load(start, Activity.COPY)
    if _maps_files(evidence, lasted):
        return Load(start, Activity.FAULT)
    if evidence.blocked_ns >= _SHORTEST_NS:
        rest = end - start - evidence.blocked_ns
        return Load(start if rest < bridge_ns else start + rest, Activity.LOCK)
    return None
