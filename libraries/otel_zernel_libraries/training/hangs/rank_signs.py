"""The signs of life of one rank: its marks, its steps, what its threads do, and its end. Times are s since 1970."""

from collections import deque
from typing import Final, NamedTuple, Self

from otel_zernel_libraries.training.hangs import frames
from otel_zernel_libraries.training.interval_spans import ProcessSpan
from otel_zernel_libraries.training.ledger import Activity
from otel_zernel_libraries.training.stacks import CodeLine, ProcessStacks, ProcessThreads, ThreadNow

_STEPS: Final = 128
"""The p90 is that of so many latest steps."""
_FRESH: Final = 15.0
"""A record holds for so long (s), and for a fifth of the silence that it reports: a process that is silent for long is
read less often."""
RUNS: Final = frozenset({Activity.OPERATOR, Activity.PYTHON, Activity.NATIVE, Activity.CPU_WAIT, Activity.THROTTLED})
_POLLS: Final = 60.0
"""s after which sleeps, or waits for a lock, at one line from record to record are one wait."""
_Wait = tuple[Activity, str, tuple[CodeLine, ...], frozenset[tuple[str, str, int]]]
"""What a thread waits for, its lines, and the collectives that are open meanwhile."""


def _running(process: ProcessThreads) -> frozenset[int]:
    several = (process.threads, *(child.threads for child in process.children))
    return frozenset(thread.thread for threads in several for thread in threads if thread.activity in RUNS)


class Ending(NamedTuple):
    """The end of a process."""

    time: float
    code: int | None = None
    signal: str = ""
    is_out_of_memory: bool = False

    @classmethod
    def of(cls, span: ProcessSpan) -> Self:
        """The end that the span of a process reports."""
        ending = span.ending
        signal = ending.signal_name or (f"signal {ending.signal}" if ending.way == "signal" else "")
        return cls(span.end_ns / 1e9, ending.exit_code, signal, ending.is_out_of_memory)

    @property
    def words(self) -> str:
        """`killed by SIGKILL`, `ended with exit code 1`."""
        if self.signal:
            memory = ", because memory was used up" if self.is_out_of_memory else ""
            return f"killed by {self.signal}{memory}"
        return "ended" if self.code is None else f"ended with exit code {self.code}"


class RankSigns:
    """Collects the signs of one process."""

    def __init__(self) -> None:
        self.marked = 0.0
        """The end of its latest mark."""
        self.stepped = 0.0
        """The end of its latest training step."""
        self.threads: ProcessThreads | None = None
        """Its latest record, and its time."""
        self.threads_at = 0.0
        self.ran: frozenset[int] = frozenset()
        """The threads that ran at the time of this record and of the one before."""
        self.ending: Ending | None = None
        self.seen: tuple[CodeLine, ...] = ()
        """The latest stack of its loop's thread. Of a process that makes marks, the one of most time since the record
        before."""
        self._durations: deque[float] = deque(maxlen=_STEPS)
        self._loop = 0
        """The thread that takes the steps; 0 if it is not known."""
        self._wait: _Wait | None = None
        self._waits_since = 0.0

    def add_mark(self, end: float) -> None:
        """Adds a mark, or any other span that the process has made."""
        self.marked = max(self.marked, end)

    def add_step(self, end: float, duration: float, thread: int) -> None:
        """Adds a training step."""
        self._durations.append(duration)
        self._loop = self._loop or thread
        self.stepped = max(self.stepped, end)

    def add_end(self, span: ProcessSpan | None) -> None:
        """Adds the end of the process, if that is known."""
        if span:
            self.ending = Ending.of(span)

    def add_threads(self, at: float, threads: ProcessThreads) -> None:
        """Adds a record. Late ones are of no use."""
        if at < self.threads_at:
            return
        self.ran = _running(threads) & (_running(self.threads) if self.threads else _running(threads))
        self.threads, self.threads_at = threads, at
        loop = self.loop
        calls = frozenset((each.operation, each.communicator, each.sequence) for each in threads.collectives)
        wait = (loop.activity, loop.detail, loop.lines, calls) if loop else None
        if wait is None or wait != self._wait:
            self._wait, self._waits_since = wait, at
        if loop:
            self._see(loop.lines)

    def add_stacks(self, stacks: ProcessStacks) -> None:
        """Adds where the process has spent its time."""
        of_loop = [stack for stack in stacks.stacks if not stack.worker and stack.thread and stack.thread == self._loop]
        for stack in sorted(of_loop, key=lambda stack: stack.seconds):
            self._see(tuple(stacks.lines[at] for at in stack.lines if at < len(stacks.lines)))

    def _see(self, lines: tuple[CodeLine, ...]) -> None:
        """Keeps a stack as the latest one, unless it has no line of the user, as those of the program's end."""
        if lines and (frames.is_of_user(lines) or not self.seen):
            self.seen = lines

    @property
    def has_lost_ranks(self) -> bool:
        """Whether ranks of its job have ended that should run on its host."""
        return self.threads is not None and self.threads.has_lost_ranks

    @property
    def steps(self) -> int:
        """The training steps that are known; at most those that its p90 counts."""
        return len(self._durations)

    @property
    def p90(self) -> float:
        """Of the durations (s) of its latest steps; 0 without any."""
        ordered = sorted(self._durations)
        return ordered[len(ordered) * 9 // 10] if ordered else 0.0

    @property
    def moved(self) -> float:
        """When it made its latest mark. Without one: when the wait of its loop's thread began, or when the receiver
        began to watch it, if that was before."""
        return max(self.marked, self.threads_at - self._silent) if self.threads else self.marked

    @property
    def is_begin_seen(self) -> bool:
        """Whether `moved` is the last sign of life, and not only the begin of the watch."""
        return self.marked > 0 or bool(self.threads and self._silent > self.threads.silent)

    @property
    def _silent(self) -> float:
        """How long (s) it had made no mark, at the time of the record."""
        if self.threads is None:
            return 0.0
        has_none = not self.marked and not self.threads.has_marks
        return max(self.threads.silent, self.loop.seconds if has_none and self.loop else 0.0)

    @property
    def loop(self) -> ThreadNow | None:
        """The thread that takes the steps; without steps the main thread."""
        threads = self.threads.threads if self.threads else ()
        stepping = next((thread for thread in threads if thread.thread == self._loop), None)
        return stepping or next((thread for thread in threads if thread.is_main), None)

    @property
    def looks_same_for(self) -> float:
        """How long (s) its loop's thread had been in the same lines with the same wait, and the same collectives had
        been open, from record to record."""
        return self.threads_at - self._waits_since

    @property
    def waits_for(self) -> float:
        """How long (s) its loop's thread had been in one wait at the time of the record. Waits that wake up now and
        then, as for Python's lock, and look the same are one. So are sleeps and waits with a time-out that look the
        same for very long, as of a program that looks again and again whether a file is there."""
        loop = self.loop
        if loop is None:
            return 0.0
        polls = loop.activity is Activity.GIL or frames.is_loading(loop.lines) or frames.serves_others(loop.lines)
        repeats = loop.activity in (Activity.TIMER, Activity.LOCK) and self.looks_same_for >= _POLLS
        return max(loop.seconds, self.looks_same_for if polls or repeats else 0.0)

    def is_fresh(self, now: float) -> bool:
        """Whether the record shows what it does now: no mark came after it."""
        if self.threads is None or self.marked > self.threads_at:
            return False
        return now - self.threads_at < _FRESH + self.threads.silent / 5
