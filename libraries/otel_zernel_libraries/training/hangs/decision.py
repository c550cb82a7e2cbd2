"""The decision whether a job hangs, since when, and which rank is guilty. Times are s since 1970.

A job hangs if none of its ranks makes a mark, computes, or transfers data, and either

- it is late by 10 s: its latest step is longer ago than 5 s, or 10 times the p90 of its steps, and 10 s more; or
- it is late, ranks wait in a collective, and another rank is blocked elsewhere; by 3 s if that one waits for a pipe or
  a socket; or
- something can never go on: different operations at one sequence number, a lock that its holder waits for, a rank
  that is dead or stopped while others wait.

A rank that computes, transfers data, compiles or waits for a person makes a job late, and no more.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from enum import Enum, auto
from typing import Final, NamedTuple

from otel_zernel_libraries.training.hangs import frames
from otel_zernel_libraries.training.hangs.job_hang import HungCollective, HungRank, HungRole, JobHang
from otel_zernel_libraries.training.hangs.rank_signs import RUNS, RankSigns
from otel_zernel_libraries.training.hangs.words import collective_words
from otel_zernel_libraries.training.ledger import Activity
from otel_zernel_libraries.training.stacks import (
    GLOO,
    HOLDS_GIL,
    LONGEST_TEXT,
    OWN_LOCK,
    STANDARD_INPUT,
    ChildNow,
    OpenCollective,
    ThreadNow,
)
from otel_zernel_libraries.training.words import activity_words

_LEAST: Final = 5.0
_TIMES_P90: Final = 10.0
_PATIENCE: Final = 10.0
"""How late a job is, at least, before it hangs, if nothing proves that it can not go on."""
_PATIENCE_WITH_PROOF: Final = 3.0
"""The same if other ranks wait for one that is dead, or that gets no data; or if all of them get none from a store."""
_FOR_OTHERS: Final = 60.0
"""The same if the rank that the others wait for waits itself for objects from elsewhere, or is at its end."""
_LONG: Final = 100.0
"""The same for waits that end alone, however long: a checkpoint, a sleep, a command, work of the GPU, other ranks that
start."""
_UNSEEN: Final = 600.0
"""The same if nothing is known of some ranks: about the time-out of collectives."""
_STILL: Final = 3.0
"""A thread is blocked if it has been in one wait for so long (s): else it only was when its threads were read."""
_STILL_IN_TRANSFER: Final = 5.0
"""The same if it may transfer data, wait by wait."""
_MOST_ABSENT: Final = 8
_BEGINNINGS: Final = frozenset({"init_process_group", "rendezvous", "_store_based_barrier", "env_rendezvous_handler"})
_NEEDS_ALL: Final = frozenset({"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier"})
_SAME_SIZE: Final = frozenset({"all_reduce", "broadcast", "reduce"})
_ENDS_ALONE: Final = frozenset(
    {Activity.TIMER, Activity.CHILD, Activity.GPU_WAIT, Activity.LAUNCH_BLOCKED, Activity.COPY}
)
_LOCKS: Final = frozenset({Activity.LOCK, Activity.GIL, Activity.COLLECTIVE})
_TRANSFERS: Final = frozenset(Activity) - _LOCKS - RUNS - _ENDS_ALONE
_FROM_OTHERS: Final = (Activity.PIPE, Activity.SOCKET)
"""A wait for a program that sends nothing. A disk may need long for one call."""
_IN_COLLECTIVE: Final = _LOCKS | {Activity.GPU_WAIT, Activity.LAUNCH_BLOCKED}
"""What a thread may do while it waits in a collective that its stack does not show."""
_BACKWARD: Final = "backward"
"""The operation of a stack in a backward pass, which waits for collectives, or computes."""
_TERMINAL: Final = ("/dev/pts/", "/dev/tty", "/dev/console")
_POINT_TO_POINT: Final = frozenset({"send", "recv", "receive", "isend", "irecv", "batch_isend_irecv"})


class Rank(NamedTuple):
    """A rank of a job, or a process that trains alone."""

    rank: int | None
    host: str
    pid: int
    signs: RankSigns
    now: float
    """The time of its host."""


class _State(Enum):
    MOVES = auto()
    """It makes marks, computes or transfers data; or nothing is known about it."""
    RESTS = auto()
    """It waits for a person."""
    SERVES = auto()
    """It waits for objects from elsewhere, or is at its end."""
    WAITS = auto()
    """It is in a collective."""
    BLOCKED = auto()
    STOPPED = auto()
    DEAD = auto()


class _Judged(NamedTuple):
    rank: Rank
    state: _State
    collective: OpenCollective | None = None
    """Of a rank that waits."""
    culprit: ThreadNow | None = None
    """The thread that blocks it: of the rank itself, of a DataLoader worker, or the one that holds the GIL."""
    detail: str = ""
    is_certain: bool = False
    """It can not go on without help from outside."""

    is_helped: bool = False
    """Another thread or a child may transfer data, and may do so for it."""

    @property
    def is_known(self) -> bool:
        """Whether probes saw the begin of its collective: then its number is known."""
        return self.collective is not None and self.collective.sequence > 0


def hang_of(ranks: Sequence[Rank], size: int = 1) -> JobHang | None:
    """The hang of a job of `size` ranks, or None. `ranks` are those that are known, each once."""
    judged = [_judge(rank, is_alone=size == 1) for rank in ranks]
    here = [each for each in judged if each.state is not _State.DEAD]
    waiting = [each for each in here if each.state is _State.WAITS]
    if not here or any(each.state in (_State.MOVES, _State.RESTS) for each in here):
        return None
    if not waiting and any(each.state is _State.SERVES for each in here):
        return None
    if all(each.state is _State.STOPPED for each in here) or (not waiting and _has_ended(judged)):
        return None
    behind = _behind(waiting, size)
    differing = [each for each in behind if _differs_in_size(each) and each.rank.signs.looks_same_for >= _STILL]
    mismatched = _mismatched(waiting, all_wait=len(waiting) == len(judged)) + differing
    are_all_here = len(ranks) >= size
    are_gone = not are_all_here and any(each.rank.signs.has_lost_ranks for each in here)
    has_dead = len(here) < len(judged) or are_gone
    rows = [
        _row(each, _role(each, mismatched, behind, has_dead=has_dead), differs_in_size=each in differing)
        for each in judged
    ]
    guilty = [each for each, row in zip(judged, rows, strict=True) if row.role is not HungRole.WAITING]
    is_certain = any(each.is_known for each in mismatched) or any(each.is_certain for each in guilty)
    if not _is_due(judged, guilty, waiting, is_certain=is_certain, are_all_seen=are_all_here or are_gone):
        return None
    absent = [] if guilty and not are_gone else list(_absent(ranks, size))
    return JobHang(
        since=min(_moved(each.rank.signs) for each in guilty or judged),
        is_at_least=not any(_is_begin_seen(each.rank.signs) for each in guilty or judged),
        collective=_collective_of([each for each in waiting if each not in mismatched] or waiting),
        ranks=tuple(sorted((*absent, *rows), key=lambda row: (row.role is HungRole.WAITING, row.rank or 0))),
    )


def stop_of(ranks: Sequence[Rank], size: int = 1) -> JobHang | None:
    """The stop of a job: somebody has stopped all its ranks that run. None of one that runs on. The job does not hang:
    a user may have pressed Ctrl-Z."""
    judged = [_judge(rank, is_alone=size == 1) for rank in ranks]
    stopped = [each for each in judged if each.state is _State.STOPPED]
    if not stopped or any(each.state not in (_State.STOPPED, _State.DEAD) for each in judged):
        return None
    if not any(_trains(each) for each in stopped) or all(_starts_others(each) for each in stopped):
        return None
    rows = tuple(_row(each, HungRole.STOPPED) for each in stopped)
    since = max(each.rank.signs.threads_at - (each.culprit.seconds if each.culprit else 0.0) for each in stopped)
    return JobHang(since=since, ranks=rows)


def _starts_others(judged: _Judged) -> bool:
    """Whether it has started the ranks and waits for them, as the agent of torchrun does."""
    return judged.culprit is not None and frames.serves_others(judged.culprit.lines)


def _judge(rank: Rank, *, is_alone: bool) -> _Judged:
    signs = rank.signs
    threads, loop = signs.threads, signs.loop
    if signs.ending:
        return _Judged(rank, _State.DEAD, detail=signs.ending.words)
    if threads is None or not signs.is_fresh(rank.now):
        return _Judged(rank, _State.MOVES)
    if threads.is_traced:
        return _Judged(rank, _State.RESTS)
    if threads.is_stopped:
        return _Judged(rank, _State.STOPPED, None, loop, loop.detail if loop else "", is_certain=True)
    if loop is None or frames.is_compiling(loop.lines):
        return _Judged(rank, _State.MOVES)
    collective = None if is_alone else _collective(loop, threads.collectives, is_still=signs.looks_same_for >= _STILL)
    if _asks_a_person(loop) or not (loop.lines or signs.steps or collective):
        return _Judged(rank, _State.RESTS)
    if collective and collective.sequence and max(loop.seconds, signs.looks_same_for) < _STILL:
        return _Judged(rank, _State.MOVES)  # the collectives before it have ended
    if collective:
        return _Judged(rank, _State.WAITS, collective, loop, loop.detail)
    return _judge_blocked(rank, loop, threads.threads, threads.children)


def _judge_blocked(rank: Rank, loop: ThreadNow, threads: Sequence[ThreadNow], children: Sequence[ChildNow]) -> _Judged:
    """A rank in no collective."""
    moves = _Judged(rank, _State.MOVES)
    if OWN_LOCK in loop.detail:
        return _Judged(rank, _State.BLOCKED, None, loop, loop.detail, is_certain=True)
    if loop.activity in RUNS:
        return moves
    if frames.is_loading(loop.lines):
        for child in children:
            if child.is_worker and (child.is_dead or child.is_stopped):
                detail = f"its DataLoader worker {_end_of(child)}"
                return _Judged(rank, _State.BLOCKED, None, loop, detail, is_certain=True)
    joins, has_ended = frames.joins(loop.lines), frames.is_ending(loop.lines)
    is_served = frames.serves_others(loop.lines) or STANDARD_INPUT in loop.detail or has_ended
    serves = is_served or (joins and any(frames.serves_others(each.lines) for each in threads))
    others = [thread for child in children if not child.is_stopped for thread in child.threads]
    if loop.activity is Activity.GIL:
        others = []
    elif loop.activity is Activity.LOCK or serves or joins:
        others += [thread for thread in threads if thread is not loop]
    if any(thread.thread in rank.signs.ran for thread in others):
        return moves
    helped = any(_may_transfer(each) or (joins and each.activity in _ENDS_ALONE) for each in others)
    if loop.activity is Activity.CHILD and not any(child.threads for child in children):
        return moves  # nothing is known about the child
    least = _STILL_IN_TRANSFER if loop.activity in _TRANSFERS else _STILL
    lost = "" if helped or has_ended or not serves else _lost_work(children, joins=joins)
    if rank.signs.waits_for < (_PATIENCE if serves and not lost else least):
        return moves
    if has_ended:
        thread = _busy_thread(loop, threads)
        detail = f"its program is at its end, and waits for {_doing(thread) if thread else 'its threads'}"
        return _Judged(rank, _State.SERVES, None, thread or loop, detail, is_helped=helped)
    if lost:
        return _Judged(rank, _State.BLOCKED, None, loop, lost, is_certain=True)
    if serves:
        return _Judged(rank, _State.SERVES, None, loop, loop.detail)
    if stuck := _stuck_child(loop, children):
        child, thread = stuck
        detail = f"its child {child.pid} ({child.name}) {_clause_of(thread)}"
        return _Judged(rank, _State.BLOCKED, None, thread if _is_stuck(child) else loop, detail, is_helped=helped)
    if loop.activity in (Activity.GIL, Activity.LOCK) and (holder := _named_thread(loop.detail, threads)):
        return _Judged(rank, _State.BLOCKED, None, holder, loop.detail, is_helped=helped)
    if frames.is_loading(loop.lines) and (busy := _stuck_worker(children)):
        worker, thread = busy
        doing = thread.detail or activity_words(thread.activity)
        detail = f"its DataLoader worker {worker.pid}: {doing}"
        return _Judged(rank, _State.BLOCKED, None, thread, detail, is_helped=helped)
    detail = loop.detail or _of_other_thread(loop, threads, joins=joins)
    return _Judged(rank, _State.BLOCKED, None, loop, detail, is_helped=helped)


def _of_other_thread(loop: ThreadNow, threads: Sequence[ThreadNow], *, joins: bool) -> str:
    """What the thread does that a thread waits for. A lock of Python has no owner that could be read."""
    thread = _busy_thread(loop, threads) if loop.activity is Activity.LOCK else None
    return _doing(thread, joins=joins) if thread else ""


def _busy_thread(loop: ThreadNow, threads: Sequence[ThreadNow]) -> ThreadNow | None:
    """The only other thread that runs code of the user."""
    busy = [each for each in threads if each is not loop and frames.is_of_user(each.lines) and not _has_no_work(each)]
    return busy[0] if len(busy) == 1 else None


def _doing(thread: ThreadNow, *, joins: bool = True) -> str:
    """`the thread 7 (saver), which sleeps in save.py:3 save`."""
    place = f"{_clause_of(thread)} in {frames.code_of(thread.lines)[0]}"
    name = f"the thread {thread.thread} ({thread.name})"
    return f"{name}, which {place}" if joins else f"a lock, while {name} {place}"


def _clause_of(thread: ThreadNow) -> str:
    """`sleeps`, `waits for the lock that it holds itself`."""
    doing = thread.detail or activity_words(thread.activity)
    return f"waits for {doing}" if doing.startswith("the ") else doing


def _has_no_work(thread: ThreadNow) -> bool:
    return frames.serves_others(thread.lines) or frames.is_loading(thread.lines) or frames.waits_for_work(thread.lines)


def _lost_work(children: Sequence[ChildNow], *, joins: bool) -> str:
    """Why a rank that waits for the work of its children waits for ever: one that is dead can have had it, and one that
    is stopped does not do it. Empty if another one may do it."""
    mains = [next((each for each in child.threads if each.is_main), None) for child in children]
    makers = [child for child, main in zip(children, mains, strict=True) if not (main and frames.helps(main.lines))]
    idle = [child for child in makers if child.is_dead or child.is_stopped]
    if idle:
        return f"its child {_end_of(idle[0])}" if len(idle) == len(makers) else ""
    pool = [main for main in mains if main and frames.is_in_pool(main.lines)]
    is_lost = joins and pool and all(frames.waits_in_pool(main.lines) and main.seconds >= _STILL for main in pool)
    return "the result of a pool whose processes have no work: one that was killed can have had it" if is_lost else ""


def _end_of(child: ChildNow) -> str:
    """`7 is dead: killed by SIGKILL`."""
    if not child.is_dead:
        return f"{child.pid} is stopped"
    return f"{child.pid} is dead: {child.ending}" if child.ending else f"{child.pid} is dead"


def _asks_a_person(loop: ThreadNow) -> bool:
    return any(name in loop.detail for name in _TERMINAL) or frames.is_prompt(loop.lines)


def _collective(loop: ThreadNow, known: Sequence[OpenCollective], *, is_still: bool) -> OpenCollective | None:
    """The collective that a thread waits in: the oldest one that has not ended, else the one of its stack. Those of
    other threads do not hold it up, unless it waits for them.

    `is_still`: it has been in the same lines for a while. A thread that waits for NCCL runs.
    """
    operation = frames.operation_of(loop.lines)
    if loop.activity is Activity.PYTHON or not (operation or loop.activity in _IN_COLLECTIVE):
        return None
    if loop.activity in RUNS and operation == _BACKWARD:
        return None
    own = [each for each in known if each.thread in (0, loop.thread)]
    if own or (known and (operation or loop.activity in (Activity.GPU_WAIT, Activity.COLLECTIVE))):
        return max(own or known, key=lambda each: each.seconds)
    is_open = operation and (is_still or loop.activity not in RUNS)
    return OpenCollective(operation=operation, seconds=loop.seconds) if is_open else None


def _may_transfer(thread: ThreadNow) -> bool:
    """Whether a thread may transfer data, wait by wait."""
    return thread.activity in _TRANSFERS and thread.seconds < _STILL_IN_TRANSFER and not _has_no_work(thread)


def _stuck_worker(children: Sequence[ChildNow]) -> tuple[ChildNow, ThreadNow] | None:
    """A DataLoader worker that works on a batch, and the thread that does."""
    for child in children:
        thread = next((each for each in child.threads if each.is_main), None)
        if child.is_worker and thread and frames.makes_batch(thread.lines):
            return child, thread
    return None


def _stuck_child(loop: ThreadNow, children: Sequence[ChildNow]) -> tuple[ChildNow, ThreadNow] | None:
    """The child whose end a thread waits for, and the child's main thread, if that has been in one wait for a while."""
    if loop.activity is not Activity.CHILD:
        return None
    named = re.search(r"child (\d+)", loop.detail)
    child = next((each for each in children if named and each.pid == int(named[1])), None)
    thread = next((each for each in child.threads if each.is_main), None) if child else None
    if child is None or thread is None or thread.activity in RUNS:
        return None
    least = _STILL_IN_TRANSFER if thread.activity in _TRANSFERS else _STILL
    return (child, thread) if thread.seconds >= least else None


def _is_stuck(child: ChildNow) -> bool:
    """Whether a child can not end alone: a command may wait for a server or for other programs, however long."""
    main = next((each for each in child.threads if each.is_main), None)
    is_locked = bool(main and main.lines) and all(each.activity in _LOCKS for each in child.threads)
    return is_locked or bool(main and main.activity is Activity.PIPE and main.detail.startswith("writes"))


def _named_thread(detail: str, threads: Sequence[ThreadNow]) -> ThreadNow | None:
    """The thread that a detail names: `the GIL, which thread 4711 holds`."""
    named = re.search(r"thread (\d+)", detail)
    return next((each for each in threads if named and each.thread == int(named[1]) and each.lines), None)


def _has_ended(judged: Sequence[_Judged]) -> bool:
    """Whether a rank has ended well: training is over, and the others end, too."""
    return any(each.rank.signs.ending is not None and each.rank.signs.ending.code == 0 for each in judged)


def _mismatched(waiting: Sequence[_Judged], *, all_wait: bool) -> list[_Judged]:
    """The ranks that wait in another operation than most, with the same number in the same communicator; all if no
    operation is that of most. Where numbers are not known, operations may differ because one rank does not come."""
    groups: defaultdict[tuple[str, int], list[tuple[_Call, _Judged]]] = defaultdict(list)
    for each in waiting:
        collective = each.collective
        if collective and collective.operation not in _POINT_TO_POINT and (all_wait or collective.sequence):
            groups[collective.communicator, collective.sequence].append((_call_of(collective), each))
    mismatched: list[_Judged] = []
    for group in groups.values():
        (usual, most), *others = Counter(call for call, _ in group).most_common()
        if others:
            is_clear = most > others[0][1]
            mismatched += [each for call, each in group if not is_clear or call != usual]
    return mismatched


_Call = tuple[str, int]


def _call_of(collective: OpenCollective) -> _Call:
    """The operation, and its size if that is the same on all ranks. Backward passes wait for `all_reduce`."""
    operation = "all_reduce" if collective.operation == _BACKWARD else collective.operation
    return operation, collective.bytes if operation in _SAME_SIZE else 0


def _behind(waiting: Sequence[_Judged], size: int) -> list[_Judged]:
    """The ranks that wait in an earlier collective of a named communicator than others, or that send or receive while
    others wait in a collective of all ranks."""
    named = [(each, each.collective) for each in waiting if each.collective and each.collective.communicator]
    latest: defaultdict[str, int] = defaultdict(int)
    for _, collective in named:
        latest[collective.communicator] = max(latest[collective.communicator], collective.sequence)
    earlier = [each for each, collective in named if 0 < collective.sequence < latest[collective.communicator]]
    if f"{GLOO} {size} ranks" not in latest:
        return earlier
    away = [each for each in waiting if each.collective and each.collective.operation in _POINT_TO_POINT]
    return earlier + [each for each in away if each not in earlier]


def _differs_in_size(judged: _Judged) -> bool:
    """Whether a rank waits in a collective that has finished on a rank that has left it: of an operation that needs
    all, that is so only if their sizes differ, or for a moment."""
    collective = judged.collective
    return collective is not None and collective.communicator.startswith(GLOO) and collective.operation in _NEEDS_ALL


def _role(judged: _Judged, mismatched: Sequence[_Judged], behind: Sequence[_Judged], *, has_dead: bool) -> HungRole:
    """A rank that is blocked in a job with a dead one waits for that one, for example in a store."""
    if judged.state is _State.WAITS:
        waits = HungRole.MISSING if judged in behind else HungRole.WAITING
        return HungRole.MISMATCHED if judged in mismatched else waits
    blocked = HungRole.MISSING if not has_dead or judged.is_certain else HungRole.WAITING
    return {_State.DEAD: HungRole.DEAD, _State.STOPPED: HungRole.STOPPED}.get(judged.state, blocked)


def _is_due(
    judged: Sequence[_Judged],
    guilty: Sequence[_Judged],
    waiting: Sequence[_Judged],
    *,
    is_certain: bool,
    are_all_seen: bool,
) -> bool:
    """Whether the job has made no mark for long enough."""
    signs = [each.rank.signs for each in judged]
    silent = min(each.rank.now - _moved(each.rank.signs) for each in judged)
    if is_certain:
        return silent >= _LEAST
    if any(each.rank.signs.ending and each.rank.signs.ending.code != 0 for each in guilty):
        return silent >= _LEAST + _PATIENCE_WITH_PROOF
    starts = not any(each.steps for each in signs)
    if starts and not any(_trains(each) for each in judged):
        return False
    late = silent - max(_LEAST, _TIMES_P90 * max(each.p90 for each in signs))
    if not are_all_seen and all(_may_wait_for_unseen(each) for each in guilty):
        return late >= _UNSEEN
    return late >= max(
        _patience(each, starts=starts, others_wait=bool(waiting)) for each in guilty or waiting or judged
    )


def _may_wait_for_unseen(judged: _Judged) -> bool:
    """Whether this one may wait for a rank that shows nothing, for example for the one that has the store."""
    return judged.state is _State.BLOCKED and judged.culprit is not None and judged.culprit.activity is Activity.SOCKET


def _patience(judged: _Judged, *, starts: bool, others_wait: bool) -> float:
    """How late (s) a job must be through this rank. `starts`: no step was seen."""
    thread, loop = judged.culprit, judged.rank.signs.loop
    keeps_gil = loop is not None and (loop.activity is Activity.GIL or loop.detail.endswith(HOLDS_GIL))
    operation = judged.collective.operation if judged.collective else ""
    if judged.state is _State.SERVES:
        return _LONG if judged.is_helped else _FOR_OTHERS
    if judged.is_helped or (thread and thread.activity is Activity.UNKNOWN and not keeps_gil):
        return _LONG if others_wait else _UNSEEN
    if thread and not keeps_gil and (thread.activity in _ENDS_ALONE or _writes_checkpoint(thread)):
        return _LONG
    if operation in _BEGINNINGS:
        return _LONG
    if judged.state is _State.WAITS and thread and thread.activity is Activity.SOCKET:  # for the store of the job
        return _PATIENCE_WITH_PROOF if thread.seconds >= _STILL_IN_TRANSFER else _PATIENCE
    if judged.state is not _State.BLOCKED or not (others_wait or starts):
        return _PATIENCE
    is_still = thread and (keeps_gil or thread.activity not in _TRANSFERS or (starts and others_wait))
    if is_still:
        return 0.0
    return _PATIENCE_WITH_PROOF if thread and thread.activity in _FROM_OTHERS else _PATIENCE


def _writes_checkpoint(thread: ThreadNow) -> bool:
    """Whether it writes a checkpoint, in one call that may be long. Nobody needs long to read a pipe."""
    return frames.writes_checkpoint(thread.lines) and thread.activity is not Activity.PIPE


def _trains(judged: _Judged) -> bool:
    """Whether something shows that a process without steps trains."""
    threads = judged.rank.signs.threads
    if threads is None or judged.rank.rank is not None:
        return judged.rank.rank is not None
    workers = any(child.is_worker for child in threads.children)
    return threads.has_marks or workers or any(frames.is_torch(thread.lines) for thread in threads.threads)


def _moved(signs: RankSigns) -> float:
    return signs.ending.time if signs.ending else signs.moved


def _is_begin_seen(signs: RankSigns) -> bool:
    return signs.ending is not None or signs.is_begin_seen


def _collective_of(waiting: Sequence[_Judged]) -> HungCollective | None:
    """The collective that most ranks wait in."""
    named = Counter(
        HungCollective(each.operation, each.communicator, each.sequence)
        for each in (each.collective for each in waiting)
        if each
    )
    return named.most_common(1)[0][0] if named else None


def _row(judged: _Judged, role: HungRole, *, differs_in_size: bool = False) -> HungRank:
    rank, thread, collective = judged.rank, judged.culprit, judged.collective
    detail = judged.detail
    if collective and role is not HungRole.WAITING:
        why = ", which other ranks have left: the sizes of their tensors differ" if differs_in_size else ""
        detail = f"waits in {collective_words(collective)}{why}"
    is_dead = role is HungRole.DEAD
    stacks = [rank.signs.seen] if is_dead else [each.lines for each in dict.fromkeys((thread, rank.signs.loop)) if each]
    activity = None if is_dead or thread is None else Activity.COLLECTIVE if collective else thread.activity
    return HungRank(
        rank=rank.rank,
        host=rank.host,
        pid=rank.pid,
        role=role,
        activity=activity,
        detail=detail[:LONGEST_TEXT],
        code=frames.code_of(*stacks),
    )


def _absent(ranks: Sequence[Rank], size: int) -> Iterator[HungRank]:
    """The ranks without a process, if few are missing."""
    known = {rank.rank for rank in ranks}
    for number in range(size if size - len(known) <= _MOST_ABSENT else 0):
        if number not in known:
            yield HungRank(rank=number, pid=0, role=HungRole.MISSING, detail="no process with this rank is seen")
