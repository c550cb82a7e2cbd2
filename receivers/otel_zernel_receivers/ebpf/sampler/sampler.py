"""The sampler: gives the kernel what it needs to know of each training process, and runs the clock."""

import ctypes
import errno
import os
import struct
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from otel_zernel.component import Logger
from otel_zernel_libraries.training.library_folders import LibraryFolders
from otel_zernel_receivers.ebpf.kernel.kernel_structs import COUNT, GIL, NUMBER, PYTHON, PYTHON_THREAD
from otel_zernel_receivers.ebpf.kernel.libbpf import Link, Object, Program
from otel_zernel_receivers.ebpf.kernel.system_calls import PERF_EVENT_OPEN
from otel_zernel_receivers.ebpf.probes.attach_modes import SAMPLER
from otel_zernel_receivers.ebpf.processes.files.mappings import Mapping as MappedFile
from otel_zernel_receivers.ebpf.processes.files.mappings import executable_mappings
from otel_zernel_receivers.ebpf.processes.procfs import ProcessFolder
from otel_zernel_receivers.ebpf.sampler.executables import executable_of
from otel_zernel_receivers.ebpf.sampler.frame_positions import FramePositions
from otel_zernel_receivers.ebpf.sampler.pace import Pace
from otel_zernel_receivers.ebpf.sampler.runtimes import (
    PythonRuntime,
    UnreadablePython,
    find_runtime,
    has_runtime,
    interpreter_in,
    register_distance,
    threads_of,
)
from otel_zernel_receivers.ebpf.sampler.stack_lines import StackLines
from otel_zernel_receivers.ebpf.tables.samples import SampledProcess
from otel_zernel_receivers.ebpf.tables.tables import THREADS_OF_PROCESS, THREADS_OF_WORKER, Tables

_ATTRIBUTES = struct.Struct("<IIQQQQQQII")
"""The first version of `struct perf_event_attr`, 64 bytes."""
_PERF_TYPE_SOFTWARE = 1
_PERF_COUNT_SW_CPU_CLOCK = 0
_EXCLUDE_IDLE, _FREQUENCY = 1 << 7, 1 << 10
_EVERY_PROCESS, _NO_GROUP, _CLOSE_ON_EXEC = -1, -1, 8


@dataclass(slots=True)
class _Known:
    """The facts about a training process or a worker that the kernel has."""

    tgid: int
    mappings: list[MappedFile] = field(default_factory=list)
    folders: LibraryFolders = field(default_factory=LibraryFolders)
    runtime: PythonRuntime | None = None
    distance: int = 0
    """Of the registers of its threads from their ids."""
    threads: dict[int, int] = field(default_factory=dict)
    """The addresses of the states of its Python threads, by thread."""
    is_unreadable: bool = False
    """It runs Python that cannot be read."""


class Sampler:
    """One thread at a time may use it."""

    def __init__(
        self,
        bpf: Object,
        tables: Tables,
        folder_of: Callable[[int], ProcessFolder],
        frequency: int,
        logger: Logger,
        proc_root: Path = Path("/proc"),
        *,
        finds_lines: bool = False,
    ) -> None:
        """`folder_of` gives the folder in /proc of a process by its pid. `frequency`: samples a second; 0 for none.
        `finds_lines`: finds the lines of stacks, and samples workers, too."""
        self._rows, self._samples, self._workers = tables.rows, tables.samples, tables.workers
        self._folder_of, self._frequency, self._logger = folder_of, frequency, logger
        self._proc_root = proc_root
        self._positions = FramePositions(bpf.maps["frame_positions"], self._samples.frames)
        self.lines = StackLines(self._samples.frames)
        """Of the stacks that were gathered; empty without `finds_lines`."""
        self._finds_lines = finds_lines
        self._samples_waits = bpf.maps["samples_waits"]
        self._by_tgid = {name: bpf.maps[name] for name in ("executables", "gils", "pythons")}
        self._threads = bpf.maps["python_threads"]
        self._program = bpf.programs.get(SAMPLER)
        self._known: dict[SampledProcess, _Known] = {}
        self._is_stop_logged = False
        self._clock: Link | None = None
        self._ticks = 0
        """The frequency of the clock."""
        self._pace = Pace(frequency)

    @property
    def unreadable(self) -> int:
        """The number of training processes whose Python cannot be read."""
        return sum(known.is_unreadable for of, known in self._known.items() if not of.worker)

    def close(self) -> None:
        """Stops the clock; safe to call twice."""
        if self._clock:
            self._samples_waits.put(NUMBER.pack(0), NUMBER.pack(0))
            self._clock.close()
            self._clock = None

    def set_running(self, now: float, *, is_allowed: bool) -> None:
        """Runs the clock, or stops it while the receiver may not take more time of the processes. `now`: monotonic
        seconds."""
        ticks = self._pace.ticks(self._samples.between_steps, now)
        if self._clock and ticks != self._ticks:
            self.close()
        if not is_allowed and self._clock:
            self.close()
            if not self._is_stop_logged:
                self._is_stop_logged = True
                self._logger.warning("The code that threads run is not sampled while a process exceeds `max_overhead`")
        elif is_allowed and not self._clock and self._frequency and self._program:
            try:
                self._clock, self._ticks = attach_clock(self._program, ticks), ticks
                self._samples_waits.put(NUMBER.pack(0), NUMBER.pack(1))
            except OSError as error:
                self._program = None
                self._logger.warning("Cannot sample the code that threads run: %s", str(error).partition("\n")[0])

    def learn(self) -> None:
        """Reads the processes that have begun to train, and forgets those that have ended."""
        sampled = self._sampled()
        self._update({of: tgid for of, tgid in sampled.items() if of not in self._known})
        if self._finds_lines:  # of threads that have begun, too
            for of in sampled:
                with suppress(OSError):  # it has ended
                    self._write_threads(of, self._known[of])

    def refresh(self) -> None:
        """Reads all training processes again: they may have loaded libraries and started threads."""
        self._update(self._sampled())

    def gather(self) -> None:
        """Moves the samples out of the kernel, and gives it those of their functions that show a position."""
        for of, stacks in self._samples.gather().items():
            known = self._known.get(of)
            if known and known.runtime:
                layout = known.runtime.layout.codes
                if not of.worker:
                    self._positions.add(known.tgid, of.pid, layout, known.folders, stacks)
                if self._finds_lines:
                    self.lines.add(of.pid, layout, known.folders, stacks)

    def _sampled(self) -> dict[SampledProcess, int]:
        """The processes that train, and their workers, with their tgids.

        Forgets the others first: a process with a new row has the same keys as before.
        """
        training = self._rows.live(trains=True)
        sampled = {SampledProcess(process): int(self._rows.array[process.row]["tgid"]) for process in training}
        if self._finds_lines:
            for process, workers in self._workers.by_process().items():
                sampled |= {SampledProcess(process, pid): tgid for pid, tgid in workers.items() if pid != process.pid}
        for of in self._known.keys() - sampled.keys():
            self._forget(of, self._known.pop(of))
            self.lines.forget(of.pid)
        return sampled

    def _update(self, sampled: Mapping[SampledProcess, int]) -> None:
        for of, tgid in sampled.items():
            known = self._known.setdefault(of, _Known(tgid))
            with suppress(OSError, ValueError):  # it has ended, or /proc denies access, which the scan reports
                if not self._learn_fork(of, known):
                    self._learn_program(of, known)
                self._write_threads(of, known)

    def _learn_fork(self, of: SampledProcess, known: _Known) -> bool:
        """Whether it is a fork of the training process, whose code is where that one's is. Raises OSError."""
        served = self._known.get(SampledProcess(of.process)) if of.worker else None
        if not served or not served.runtime or not has_runtime(of.pid, served.runtime):
            return False
        if not known.runtime:
            known.distance = served.distance
            self._set_runtime(known, served.runtime)
        known.folders = served.folders
        return True

    def _learn_program(self, of: SampledProcess, known: _Known) -> None:
        folder = self._folder_of(of.pid)
        mappings = executable_mappings(folder.maps)
        if mappings != known.mappings or known.is_unreadable:
            with suppress(OSError):  # the table has room for few workers that are no forks
                self._by_tgid["executables"].put(NUMBER.pack(known.tgid), executable_of(mappings).tobytes())
            known.distance = register_distance(folder.pid, mappings, self._proc_root, of.pid)
            self._find_python(of.pid, known, interpreter_in(mappings, folder.executable), folder.pid)
            known.mappings, known.folders = mappings, LibraryFolders.of(mapping.path for mapping in mappings)

    def _find_python(self, own_pid: int, known: _Known, interpreters: list[MappedFile], pid: int) -> None:
        try:
            runtime = find_runtime(pid, interpreters, self._proc_root, own_pid)
        except UnreadablePython as reason:
            if not known.is_unreadable:
                self._log_unreadable(own_pid, reason)
            known.is_unreadable = True
            return
        known.is_unreadable = False
        if runtime:
            self._set_runtime(known, runtime)

    def _log_unreadable(self, own_pid: int, reason: UnreadablePython) -> None:
        if self._finds_lines:
            self._logger.warning(
                "No lines of code of process %d: %s; run `py-spy dump` for those of now", own_pid, reason
            )
        else:
            self._logger.info("The Python of process %d cannot be read: %s", own_pid, reason)

    def _set_runtime(self, known: _Known, runtime: PythonRuntime) -> None:
        known.runtime = runtime
        key, gil = NUMBER.pack(known.tgid), runtime.gil
        self._by_tgid["gils"].put(key, np.array((gil.start, gil.stop), GIL).tobytes())
        frames = runtime.layout.frames._replace(thread_register=known.distance)
        self._by_tgid["pythons"].put(key, np.array(tuple(frames), PYTHON).tobytes())

    def _write_threads(self, of: SampledProcess, known: _Known) -> None:
        most = THREADS_OF_WORKER if of.worker else THREADS_OF_PROCESS
        threads = threads_of(known.runtime, of.pid, most) if known.runtime else {}
        for thread in known.threads.keys() - threads.keys():
            self._threads.delete(_key(known, thread))
            del known.threads[thread]
        for thread, state in threads.items() - known.threads.items():
            known.threads[thread] = state
            self._threads.put(_key(known, thread), COUNT.pack(state))

    def _forget(self, of: SampledProcess, known: _Known) -> None:
        if not of.worker:
            self._samples.forget(of.process)
            self._pace.forget(of.process)
        for thread in known.threads:
            self._threads.delete(_key(known, thread))
        if known.tgid not in {code.tgid for code in self._known.values()}:  # by exec, a process keeps its tgid
            self._positions.forget(known.tgid)
            for table in self._by_tgid.values():
                table.delete(NUMBER.pack(known.tgid))


def _key(known: _Known, thread: int) -> bytes:
    return np.array((thread, known.tgid, 0), PYTHON_THREAD).tobytes()


def attach_clock(program: Program, frequency: int) -> Link:
    """Runs the program so many times a second on each CPU that is online and not idle, by a software event of each.

    Raises OSError.
    """
    with ExitStack() as links:
        for cpu in range(os.sysconf("SC_NPROCESSORS_CONF")):
            try:
                event = _clock_of(cpu, frequency)
            except OSError as error:
                if error.errno != errno.ENODEV:  # offline
                    raise
                continue
            try:
                links.callback(program.attach_event(event).close)
            except BaseException:
                os.close(event)
                raise
        return Link(links.pop_all().close)


def _clock_of(cpu: int, frequency: int) -> int:
    size, flags = _ATTRIBUTES.size, _FREQUENCY | _EXCLUDE_IDLE
    attributes = _ATTRIBUTES.pack(_PERF_TYPE_SOFTWARE, size, _PERF_COUNT_SW_CPU_CLOCK, frequency, 0, 0, flags, 0, 0, 0)
    libc = ctypes.CDLL(None, use_errno=True)
    number = PERF_EVENT_OPEN.numbers[os.uname().machine]
    arguments = (
        ctypes.c_long(_EVERY_PROCESS),
        ctypes.c_long(cpu),
        ctypes.c_long(_NO_GROUP),
        ctypes.c_long(_CLOSE_ON_EXEC),
    )
    event: int = libc.syscall(ctypes.c_long(number), attributes, *arguments)
    if event < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return event
