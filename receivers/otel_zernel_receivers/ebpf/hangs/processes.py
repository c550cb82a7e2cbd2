"""What a process does now: its threads, and its children with theirs.

    reader = ProcessReader(folder_of)
    threads = reader.read(Watched(pid))       # a `ProcessThreads`

Nothing is stopped and no probe is needed, so it also works for a job that was stuck before the receiver came.
"""

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Final

import numpy as np

from otel_zernel_libraries.job_environment import (
    JOB_VARIABLES,
    LOCAL_VARIABLES,
    RANK,
    RANK_VARIABLES,
    WORLD_SIZE,
    job_id,
    rank_attributes,
    ranks_of_one_host,
)
from otel_zernel_libraries.training.ledger import Activity
from otel_zernel_libraries.training.library_folders import LibraryFolders, is_of_pytorch, waits_for_gpu
from otel_zernel_libraries.training.stacks import (
    HOLDS_GIL,
    MOST_COLLECTIVES,
    MOST_THREADS,
    ChildNow,
    CodeLine,
    OpenCollective,
    ProcessThreads,
    ThreadNow,
)
from otel_zernel_receivers.ebpf.hangs.collectives import gloo_collective
from otel_zernel_receivers.ebpf.hangs.descriptors import Described, Descriptors
from otel_zernel_receivers.ebpf.hangs.frames import PythonThreads
from otel_zernel_receivers.ebpf.hangs.gloo_works import (
    SIZE,
    TorchCode,
    Work,
    WorkLayout,
    is_on_stack,
    torch_code,
    words_of,
    works_on,
)
from otel_zernel_receivers.ebpf.hangs.tasks import (
    SchedulerClocks,
    Task,
    children_of,
    ending_of,
    own_ids,
    read_status,
    read_task,
    task_ids,
)
from otel_zernel_receivers.ebpf.hangs.waits import Waits
from otel_zernel_receivers.ebpf.processes.files.mappings import executable_mappings
from otel_zernel_receivers.ebpf.processes.process_memory import memory_of
from otel_zernel_receivers.ebpf.processes.procfs import ProcessFolder
from otel_zernel_receivers.ebpf.processes.workers import is_worker
from otel_zernel_receivers.ebpf.sampler.code_lines import CodeLines
from otel_zernel_receivers.ebpf.sampler.runtimes import UnreadablePython, find_runtime, interpreter_in

_BUDGET: Final = 0.02
"""s that a reading of a process and its children may take. Then the other threads and children are left out."""
_MOST_CHILDREN: Final = 64
_MOST_KNOWN: Final = 1_024
"""Processes whose interpreter is remembered."""
_SWAPPED: Final = 0.25
"""The ratio of a process's memory in swap from which on a page fault counts as a wait for swap."""
_IN_CALLS: Final = (Activity.COLLECTIVE, Activity.GPU_WAIT, Activity.LAUNCH_BLOCKED, Activity.COPY)
"""Activities that only the kernel's programs know: a probe is on the call."""
_MOST_RUNS: Final = 0.5
"""Runs a second of a thread that waits for one thing. A DataLoader looks after its workers each 5 s."""
_LOOKS_FOR_RANKS: Final = 5.0
"""s without a mark after which the other ranks of a job are looked for among all processes, and between two looks."""
_OF_RANKS: Final = JOB_VARIABLES | LOCAL_VARIABLES | RANK_VARIABLES
_INNERMOST: Final = 4_096
"""Bytes of a stack in which the function of a wait is."""
_LISTED: Final = "RD"
"""The states of threads that are listed although they run no Python: they run, or wait for a disk."""


@dataclass(frozen=True, slots=True)
class Since:
    """The activity of a thread as the kernel's programs know it."""

    activity: Activity
    seconds: float


@dataclass(frozen=True, slots=True)
class Watched:
    """A process, and the facts about it that /proc does not have."""

    pid: int
    """In the collector's pid namespace."""
    silent: float = 0.0
    has_marks: bool = False
    """As in `ProcessThreads`."""
    threads: Mapping[int, Since] = field(default_factory=dict)
    """Those that make marks or call CUDA."""
    workers: Collection[int] = ()
    """The pids of its children that load data."""


@dataclass
class _Program:
    """The code of a process."""

    python: PythonThreads | None
    folders: LibraryFolders | None = None
    """None until it has PyTorch."""
    torch: TorchCode | None = None
    """None until it is needed."""


@dataclass
class _Tasks:
    """Threads of one process at one moment."""

    folder: ProcessFolder
    process: Watched
    program: _Program
    states: Mapping[int, int]
    """The addresses of the states of its Python threads, by thread."""
    own: Mapping[int, int]
    """Its threads by the ids that they have in their own pid namespace."""
    tasks: dict[int, Task] = field(default_factory=dict)
    stacks: list[int] = field(default_factory=list)
    """The stack pointers of threads without Python that wait for locks."""

    @cached_property
    def gil_holder(self) -> int:
        """The thread that holds the GIL; 0 if none does."""
        holder = self.python.gil_holder() if self.python else 0
        return next((tid for tid, state in self.states.items() if state == holder), 0)

    def library_folders(self) -> LibraryFolders:
        """Those of its Python code."""
        if self.program.folders or not self.python:
            return self.program.folders or LibraryFolders()
        folders = LibraryFolders.of(mapping.path for mapping in executable_mappings(self.folder.maps))
        if folders.pytorch:  # else it may import PyTorch later
            self.program.folders = folders
        return folders

    @property
    def python(self) -> PythonThreads | None:
        return self.program.python

    def waits(self, children: Mapping[int, ProcessFolder]) -> Waits:
        """Finds the object of each wait."""
        return Waits(
            lambda address, size: memory_of(self.process.pid, address, size),
            Descriptors(self.folder, children),
            {tid: task.name for tid, task in self.tasks.items()},
            self.own,
            self.python.gil if self.python else range(0),
            self.gil_holder,
            {pid: child.name for pid, child in children.items()},
        )


@dataclass(frozen=True, slots=True)
class _Wait:
    """A wait of a thread, and when it was first seen."""

    wait: tuple[str, Described, tuple[CodeLine, ...]]
    seen: float
    runs: int

    def goes_on(self, later: "_Wait") -> bool:
        """Whether the thread waits in the same line for the same. A wait with a timeout begins again now and then."""
        return later.wait == self.wait and later.runs - self.runs <= (later.seen - self.seen) * _MOST_RUNS


class ProcessReader:
    """Reads processes. One thread at a time may use it.

    A call blocks for about a millisecond, and for 7 ms if the process waits in gloo. The first one for a process blocks
    for up to 35 ms.
    """

    def __init__(
        self,
        folder_of: Callable[[int], ProcessFolder],
        proc_root: Path = Path("/proc"),
        budget: float = _BUDGET,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`folder_of` gives the folder in /proc of a process by its pid in the collector's pid namespace."""
        self._folder_of, self._proc_root, self._budget, self._monotonic = folder_of, proc_root, budget, monotonic
        self._lines, self._clocks = CodeLines(), SchedulerClocks()
        self._programs: dict[tuple[int, int], _Program] = {}
        """By pid and start time."""
        self._waits: dict[int, dict[int, _Wait]] = {}
        """By pid and thread."""
        self._living: dict[_Job, tuple[float, int]] = {}
        """When the ranks of a job were counted, and how many live."""

    def read(self, process: Watched) -> ProcessThreads:
        """A process and its children now.

        Raises OSError or ValueError if the process has ended, or if /proc denies access.
        """
        deadline = self._monotonic() + self._budget
        folder = self._folder_of(process.pid)
        pids = dict.fromkeys((*process.workers, *children_of(folder)))
        children = {pid: self._folder_of(pid) for pid in list(pids)[:_MOST_CHILDREN]}
        tasks = self._tasks(folder, process, deadline)
        threads = tuple(self._threads(tasks, children, deadline))
        return ProcessThreads(
            silent=process.silent,
            has_marks=process.has_marks,
            is_stopped=_is_stopped(tasks),
            is_traced=read_status(folder).is_traced,
            has_lost_ranks=self._has_lost_ranks(folder, process, deadline),
            threads=threads,
            collectives=tuple(
                collective
                for _, collective in zip(range(MOST_COLLECTIVES), self._collectives(tasks, threads), strict=False)
            ),
            children=tuple(self._read_children(children, process.workers, deadline)),
        )

    def _read_children(
        self, children: Mapping[int, ProcessFolder], workers: Collection[int], deadline: float
    ) -> Iterator[ChildNow]:
        for pid, folder in children.items():
            with suppress(OSError, ValueError):
                name, is_dead = folder.name, read_status(folder).is_dead
                loads = pid in workers or is_worker(folder)
                if is_dead:
                    yield ChildNow(pid=pid, name=name, is_worker=loads, is_dead=True, ending=ending_of(folder))
                else:
                    tasks = self._tasks(folder, Watched(pid), deadline)
                    threads, is_stopped = tuple(self._threads(tasks, {}, deadline)), _is_stopped(tasks)
                    yield ChildNow(pid=pid, name=name, is_worker=loads, is_stopped=is_stopped, threads=threads)

    def _has_lost_ranks(self, folder: ProcessFolder, process: Watched, deadline: float) -> bool:
        """Whether fewer ranks of its job live than the job has, although all of them should run on this host.

        Without ranks in the environment, the processes that its launcher has started count.
        """
        if process.silent < _LOOKS_FOR_RANKS:
            return False
        with suppress(OSError, ValueError):
            environment = folder.environment(_OF_RANKS, process.pid)
            if not (size := ranks_of_one_host(environment)):
                return False
            if RANK in rank_attributes(environment):
                living = self._living_ranks(folder, _job_of(environment), deadline)
                return 0 < living < size
            started = map(self._folder_of, children_of(self._folder_of(folder.parent())))
            return 0 < sum(_lives(rank_folder, folder.executable) for rank_folder in started) < size
        return False

    def _living_ranks(self, rank_folder: ProcessFolder, job: "_Job", deadline: float) -> int:
        """The number of live ranks of the job, whichever process started them; 0 if it is not known."""
        now = self._monotonic()
        counted, living = self._living.get(job, (-_LOOKS_FOR_RANKS, 0))
        if now - counted < _LOOKS_FOR_RANKS:
            return living
        ranks: set[int] = set()
        root = rank_folder.path.parent
        for entry in root.iterdir():
            folder = ProcessFolder(root, int(entry.name)) if entry.name.isdecimal() else None
            if folder is None or not _lives(folder, rank_folder.executable):
                continue
            if self._monotonic() > deadline:
                return 0
            environment = folder.environment(_OF_RANKS)  # empty without the right to read it
            if _job_of(environment) == job:
                ranks |= {number for name, number in rank_attributes(environment).items() if name == RANK}
        if len(self._living) >= _MOST_KNOWN:
            self._living.clear()
        self._living[job] = now, len(ranks)
        return len(ranks)

    def _tasks(self, folder: ProcessFolder, process: Watched, deadline: float) -> _Tasks:
        """The main thread, those that run Python or have made marks, and others that run or wait for a disk."""
        program, ids = self._program(folder, process.pid), task_ids(folder)
        own = own_ids(folder, ids)
        states = program.python.states(own) if program.python else {}
        of = _Tasks(folder, process, program, states, own)
        shown = {folder.pid, *states, *process.threads}
        for tid in sorted(ids, key=lambda tid: (tid != folder.pid, tid not in shown, tid)):
            if len(of.tasks) == MOST_THREADS or (of.tasks and self._monotonic() > deadline):
                break
            with suppress(OSError, ValueError):
                task = read_task(folder, tid, self._clocks if tid in shown else None)
                if tid in shown or (task.state in _LISTED and not task.is_of_transport):
                    of.tasks[tid] = task
                elif task.call == "futex":
                    of.stacks.append(task.stack)
        return of

    def _threads(self, of: _Tasks, children: Mapping[int, ProcessFolder], deadline: float) -> Iterator[ThreadNow]:
        waits = of.waits(children)
        folders = of.library_folders()
        before, now = self._waits.pop(of.process.pid, {}), self._monotonic()
        seen = self._waits[of.process.pid] = {}
        while len(self._waits) > _MOST_KNOWN:
            del self._waits[next(iter(self._waits))]  # the process that was not read for the longest time
        for tid, task in of.tasks.items():
            lines = self._frames(of, task, folders)
            holds_gil, is_blocked = tid == of.gil_holder, not task.is_running and not task.is_stopped
            wait = _running(lines, holds_gil=holds_gil) if task.is_running else waits.of(task)
            if wait.activity is Activity.FAULT and read_status(of.folder).swapped > _SWAPPED:
                wait = Described(Activity.SWAP, wait.text)
            if wait == Described(Activity.LOCK, "") and lines and self._waits_for_ranks(of, task):
                wait = Described(Activity.COLLECTIVE, "")
            since = of.process.threads.get(tid, Since(Activity.UNKNOWN, 0.0))
            seen[tid] = _Wait((task.call, wait, lines), now, task.runs)
            if tid in before and task.runs and before[tid].goes_on(seen[tid]):
                seen[tid] = before[tid]
            yield ThreadNow(
                thread=tid,
                name=task.name,
                is_main=tid == of.folder.pid,
                activity=since.activity if since.activity in _IN_CALLS else wait.activity,
                detail=f"{wait.text or 'waits'} {HOLDS_GIL}" if holds_gil and is_blocked else wait.text,
                seconds=max(since.seconds, now - seen[tid].seen, task.slept),
                lines=lines,
            )
            if self._monotonic() > deadline:
                break

    def _frames(self, of: _Tasks, task: Task, folders: LibraryFolders) -> tuple[CodeLine, ...]:
        if not of.python or task.tid not in of.states:
            return ()
        frames = of.python.frames(of.states[task.tid], is_running=task.is_running)
        return self._lines.of(of.process.pid, of.python.codes, folders, frames)

    def _program(self, folder: ProcessFolder, pid: int) -> _Program:
        key = pid, folder.start_time()
        if key not in self._programs:
            if len(self._programs) >= _MOST_KNOWN:
                self._programs.clear()
            self._programs[key] = _Program(self._python(folder, pid))
        return self._programs[key]

    def _python(self, folder: ProcessFolder, pid: int) -> PythonThreads | None:
        mappings = interpreter_in(executable_mappings(folder.maps), folder.executable)
        try:
            runtime = find_runtime(folder.pid, mappings, self._proc_root, pid)
        except UnreadablePython:  # the sampler logs and counts it
            return None
        return PythonThreads(runtime, pid) if runtime else None

    def _torch_code(self, of: _Tasks) -> TorchCode:
        if of.program.torch is None:
            of.program.torch = torch_code(self._proc_root, of.folder.pid, executable_mappings(of.folder.maps))
        return of.program.torch

    def _waits_for_ranks(self, of: _Tasks, task: Task) -> bool:
        """Whether a thread that waits for a lock waits for other ranks."""
        return is_on_stack(words_of(of.process.pid, task.stack, _INNERMOST), self._torch_code(of).waits)

    def _collectives(self, of: _Tasks, threads: Iterable[ThreadNow]) -> Iterator[OpenCollective]:
        """The collectives that threads wait for, the oldest first, whether or not a probe has seen them begin.

        One that is not known is a `wait`, unless the innermost frame is PyTorch's, which says more.
        """
        waiting = [thread for thread in threads if thread.activity is Activity.COLLECTIVE]
        if not waiting:
            return
        layout = self._torch_code(of).works
        moved = self._moved_works(of, layout) if layout else []
        world = rank_attributes(of.folder.environment(RANK_VARIABLES, of.process.pid)).get(WORLD_SIZE, 0)
        for thread in waiting:
            words = words_of(of.process.pid, of.tasks[thread.thread].stack, SIZE)
            works = (works_on(of.process.pid, layout, words, of.folder.maps) if layout else []) or moved
            for work in works:
                yield gloo_collective(work, world, thread=thread.thread, seconds=thread.seconds)
            if not works and not any(map(is_of_pytorch, thread.lines[:1])):
                yield OpenCollective(operation="wait", thread=thread.thread, seconds=thread.seconds)

    def _moved_works(self, of: _Tasks, layout: WorkLayout) -> list[Work]:
        """The collectives that threads of gloo work on."""
        stacks = [words_of(of.process.pid, stack, SIZE) for stack in of.stacks]
        moving = [words for words in stacks if is_on_stack(words, self._torch_code(of).moves)]
        return works_on(of.process.pid, layout, np.concatenate(moving), of.folder.maps) if moving else []


def _running(lines: tuple[CodeLine, ...], *, holds_gil: bool) -> Described:
    """The activity of a thread that runs, or could. One that waits for the GPU runs, too: calls of CUDA poll."""
    if holds_gil:
        return Described(Activity.PYTHON, "")
    if any(map(waits_for_gpu, lines[:1])):
        return Described(Activity.GPU_WAIT, "")
    is_operator = any(map(is_of_pytorch, lines[:1]))
    return Described(Activity.OPERATOR if is_operator else Activity.NATIVE, "")


_Job = tuple[str, ...]


def _job_of(environment: Mapping[str, str]) -> _Job:
    """What the ranks of one job share."""
    return job_id(environment, ""), environment.get("MASTER_ADDR", ""), environment.get("MASTER_PORT", "")


def _lives(folder: ProcessFolder, executable: str) -> bool:
    """Whether the process lives and runs this executable."""
    with suppress(OSError):
        return folder.executable == executable and not read_status(folder).is_dead
    return False


def _is_stopped(of: _Tasks) -> bool:
    main = of.tasks.get(of.folder.pid)
    return bool(main and main.is_stopped)
